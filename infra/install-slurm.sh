#!/bin/sh
# Install Slurm from the distribution's packages, unless it is installed. The tests start their own daemons.
set -eu
command -v slurmctld >/dev/null 2>&1 && command -v slurmd >/dev/null 2>&1 && command -v munged >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "slurm is missing: install it with 'sudo apt-get install slurmctld slurmd slurm-client munge'" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurmctld slurmd slurm-client munge
