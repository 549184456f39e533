#!/bin/sh
# Install kubectl from the distribution's packages, unless it is installed. The tests build the manifests with it,
# without a cluster.
set -eu
command -v kubectl >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "kubectl is missing: install it with 'sudo apt-get install kubernetes-client'" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends kubernetes-client
