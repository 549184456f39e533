#!/bin/sh
# Install Virtuoso 7 from the distribution's packages, unless it is installed. The tests start their own servers.
set -eu
command -v virtuoso-t >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "virtuoso-t is missing: install it with 'sudo apt-get install virtuoso-opensource-7'" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends virtuoso-opensource-7
