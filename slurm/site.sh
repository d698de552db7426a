# shellcheck shell=bash
# What this site is like. Read by every job; `make install` leaves an edited one alone. All lines are optional.

# Modules that the jobs need beside annulus, where sbatch does not pass the environment on:
# module load annulus

# How ranks are started: pmix, pmi2 (srun --mpi=...) or mpirun. Found out when not set.
# ANNULUS_MPI=pmix

# Seconds to leave free before the end of the allocation, for a slow epilog.
# ANNULUS_MARGIN=0

# Seconds between two questions for the end of the allocation, which may be moved while a job runs.
# ANNULUS_ASK=600

# Seconds that the other ranks are left when one has ended.
# ANNULUS_WAIT=60

# Put before the program on every rank; bind.sh places a rank on the processors next to its GPU.
# ANNULUS_WRAPPER=/usr/bin/env

# Networks: addresses of version 4, and the interfaces that reach all nodes (ip -br address).
export NCCL_SOCKET_FAMILY=AF_INET
# export NCCL_SOCKET_IFNAME=ib0
# export NCCL_IB_HCA=mlx5
# export OMPI_MCA_btl_tcp_if_include=ib0 OMPI_MCA_oob_tcp_if_include=ib0
