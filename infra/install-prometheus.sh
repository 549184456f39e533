#!/bin/sh
# Install Prometheus and promtool from the distribution's packages, unless they are installed. The tests start their own
# servers.
set -eu
command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "prometheus is missing: install it with 'sudo apt-get install --no-install-recommends prometheus'" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends prometheus
