#!/bin/sh
# Open MPI from Debian's packages, which `init_process_group("mpi")` needs, and how a program is started with it.
set -eu
if ! command -v mpirun > /dev/null; then
    if [ "$(id -u)" != 0 ]; then
        echo 'As root: apt-get install openmpi-bin libopenmpi-dev' >&2
        exit 1
    fi
    apt-get install -y -q openmpi-bin libopenmpi-dev
fi
mpirun --version | head -1
echo 'MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 mpirun -n 2 python script.py     # root adds --allow-run-as-root'
echo 'with init_process_group("mpi") in the script'
