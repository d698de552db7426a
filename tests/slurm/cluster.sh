#!/bin/bash
# A Slurm of two nodes on one machine, thrown away afterwards. Needs root; on Debian and Ubuntu it installs what
# is missing.
#   cluster.sh up FOLDER          munge, the controller, and two nodes; code 77: not possible here, and why
#   cluster.sh env FOLDER         what a shell needs to talk to it: eval "$(cluster.sh env FOLDER)"
#   cluster.sh node FOLDER NAME   (re)starts the daemon of one node
#   cluster.sh down FOLDER        ends it all and removes FOLDER
# A node is a network, host name and mount namespace of its own with its own /dev/shm: ranks on two nodes then talk
# over TCP as on two machines, and shared memory joins only ranks of one node. Nothing outside FOLDER is used: own
# munge key, own ports, own bridge.
set -euo pipefail
action=${1:?up, env, node or down} folder=${2:?folder}
nodes=(smokea smokeb)
cpus=8 gpus=8 memory=16000 port=17817 bridge=annulus0 subnet=10.91.7
export SLURM_CONF=$folder/slurm.conf

skip() {
  echo "skipped: $1"
  exit 77
}

install_packages() {
  local missing=()
  command -v slurmctld >/dev/null && command -v slurmd >/dev/null || missing+=(slurm-wlm)
  command -v munged >/dev/null || missing+=(munge)
  command -v ip >/dev/null || missing+=(iproute2)
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || skip "${missing[*]} not installed, and no apt-get here"
  echo "installing: ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends \
    "${missing[@]}" >/dev/null; } || skip "${missing[*]} cannot be installed"
}

write_config() {
  local host i g
  host=$(hostname -s)
  cat >"$SLURM_CONF" <<CONF
ClusterName=smoke
SlurmctldHost=$host($subnet.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
# Two nodes must not share the folder in which PMIx meets.
TmpFS=$folder/tmp/%n
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd.%n
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
GresTypes=gpu
JobRequeue=1
ReturnToService=2
KillWait=15
MinJobAge=3600
CONF
  : >"$folder/plugstack.conf"
  echo "AutoDetect=off" >"$folder/gres.conf"
  for i in "${!nodes[@]}"; do
    echo "NodeName=${nodes[i]} NodeAddr=$subnet.$((11 + i)) Port=$((port + 1 + i)) CPUs=$cpus RealMemory=$memory Gres=gpu:$gpus" >>"$SLURM_CONF"
    # A GPU must be a character device: these are copies of /dev/null.
    for ((g = 0; g < gpus; g++)); do mknod "$folder/dev/${nodes[i]}-$g" c 1 3; done
    echo "NodeName=${nodes[i]} Name=gpu File=$folder/dev/${nodes[i]}-[0-$((gpus - 1))]" >>"$folder/gres.conf"
  done
  echo "PartitionName=all Nodes=$(IFS=,; echo "${nodes[*]}") Default=YES MaxTime=UNLIMITED DefaultTime=10 State=UP" >>"$SLURM_CONF"
}

make_networks() {
  local i
  ip link add "$bridge" type bridge 2>/dev/null || skip "network namespaces are not allowed here"
  ip addr add "$subnet.1/24" dev "$bridge"
  ip link set "$bridge" up
  printf '127.0.0.1 localhost\n%s %s\n' "$subnet.1" "$(hostname -s)" >"$folder/hosts"
  for i in "${!nodes[@]}"; do
    ip netns add "annulus-${nodes[i]}"
    ip link add "annulus-$i" type veth peer name eth0 netns "annulus-${nodes[i]}"
    ip link set "annulus-$i" master "$bridge" up
    ip -n "annulus-${nodes[i]}" addr add "$subnet.$((11 + i))/24" dev eth0
    ip -n "annulus-${nodes[i]}" link set eth0 up
    ip -n "annulus-${nodes[i]}" link set lo up
    echo "$subnet.$((11 + i)) ${nodes[i]}" >>"$folder/hosts"
  done
}

# `ip netns exec` would mount /sys anew, and slurmd finds no control groups then.
start_node() {
  # shellcheck disable=SC2016
  nsenter --net="/run/netns/annulus-$1" unshare --mount --uts bash -c '
    hostname "$1" && mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount --bind "$2/hosts" /etc/hosts &&
    exec slurmd -N "$1"' _ "$1" "$folder"
}

wait_idle() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    [ "$(timeout 5 sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" != ${#nodes[@]} ] || return 0
    sleep 0.2
  done
  echo "Slurm did not come up:" >&2
  tail -n 5 "$folder"/log/* >&2
  return 1
}

end() { # PID_FILE
  local pid tries
  [ -s "$1" ] || return 0
  pid=$(cat "$1")
  kill "$pid" 2>/dev/null || return 0
  for ((tries = 0; tries < 100; tries++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

down() {
  local node
  if [ -s "$folder/run/slurmctld.pid" ]; then timeout 10 scancel --user=root 2>/dev/null || true; sleep 1; fi
  for node in "${nodes[@]}"; do end "$folder/run/slurmd.$node.pid"; done
  end "$folder/run/slurmctld.pid"
  end "$folder/run/munged.pid"
  for node in "${nodes[@]}"; do ip netns del "annulus-$node" 2>/dev/null || true; done
  ip link del "$bridge" 2>/dev/null || true
  rm -rf "$folder"
}

up() {
  local node
  [ "$(id -u)" = 0 ] || skip "a Slurm of one's own needs root"
  install_packages
  unshare --mount --uts true 2>/dev/null || skip "mount namespaces are not allowed here"
  mkdir -p "$folder"/{log,run,state,spool,munge,dev,tmp}
  chmod 755 "$folder"
  chmod 711 "$folder/munge"
  make_networks
  (umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
  munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --seed-file="$folder/munge/seed" \
    --pid-file="$folder/run/munged.pid" --log-file="$folder/log/munged"
  write_config
  slurmctld -c
  for node in "${nodes[@]}"; do
    mkdir -p "$folder/spool/$node" "$folder/tmp/$node"
    start_node "$node"
  done
  wait_idle
}

case $action in
  up) up ;;
  env) echo "export SLURM_CONF=$SLURM_CONF" ;;
  node) start_node "${3:?node}" ;;
  down) down ;;
  *) echo "usage: $0 up|env|node|down FOLDER" >&2; exit 2 ;;
esac
