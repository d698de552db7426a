# shellcheck shell=bash disable=SC2154
# Cases of check.sh: the installed module in a clean shell. The two module systems exclude each other as packages,
# so one that is not installed is taken out of its package without being installed.

# unpack PACKAGE...: into $work/packages.
unpack() {
  mkdir -p "$work/packages"
  (cd "$work/packages" && apt-get download -qq "$@" >/dev/null 2>&1 && for p in *.deb; do dpkg -x "$p" .; done)
}

# in_clean_shell START: loads the module after START in a shell without environment, and uses it.
in_clean_shell() {
  env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin TERM=dumb bash --norc --noprofile -c "$1
    module use $work/apps/modulefiles $work/needed || exit 10
    module load annulus || exit 11
    [ \"\$(command -v annulus)\" = $work/apps/bin/annulus ] || exit 12
    annulus --version >/dev/null || exit 13
    [ \"\$NEEDED\" = yes ] || exit 21
    [ \"\$ANNULUS_HOME\" = $work/apps ] || exit 14
    case :\$LD_LIBRARY_PATH: in *:$work/apps/lib:*) ;; *) exit 15 ;; esac
    case \$MANPATH in $work/apps/share/man:*) ;; *) exit 16 ;; esac
    module help annulus 2>&1 | grep -q 'sbatch -A' || exit 17
    module load annulus/other 2>&1
    command -v annulus | grep -q other && case :\$PATH: in *:$work/apps/bin:*) exit 18 ;; esac
    module unload annulus/other 2>/dev/null; module unload annulus || exit 19
    command -v annulus && exit 20
    exit 0" >"$work/module.out" 2>&1
  local code=$?
  [ $code = 0 ] || bad "the module's check $code: $(tail -n 3 "$work/module.out")"
}

# Another version beside ours, which must not be loaded together with it.
another_version() {
  local from=$work/apps/modulefiles/annulus version
  version=$(annulus --version | cut -d ' ' -f 2)
  mkdir -p "$work/other/bin"
  printf '#!/bin/sh\n' >"$work/other/bin/annulus"
  chmod +x "$work/other/bin/annulus"
  sed "s|$work/apps|$work/other|" "$from/$version" >"$from/other"
  sed "s|$work/apps|$work/other|" "$from/$version.lua" >"$from/other.lua"
  printf '#%%Module1.0\nset ModulesVersion %s\n' "$version" >"$from/.version"
}

tcl_module() {
  local command=/usr/lib/x86_64-linux-gnu/modulecmd.tcl
  another_version
  if [ ! -e $command ]; then
    if ! command -v tclsh >/dev/null || ! unpack environment-modules; then
      echo "skipped: environment-modules is not installed and its package not to be had"
      skipped=$((skipped + 1))
      return
    fi
    command=$work/packages$command
  fi
  in_clean_shell "eval \"\$(tclsh $command bash autoinit)\""
}

lua_module() {
  local init=/usr/share/lmod/lmod/init/bash
  another_version
  # Lmod does not run from elsewhere; installing it would remove the other system where that is installed.
  if [ ! -e $init ] && [ ! -e /usr/share/modules/init/bash ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends lmod >/dev/null 2>&1
  fi
  if [ ! -e $init ]; then
    echo "skipped: lmod is not installed and cannot be"
    skipped=$((skipped + 1))
    return
  fi
  in_clean_shell ". $init"
}
