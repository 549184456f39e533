#!/bin/sh
# Install Chromium and its driver from the distribution's packages, unless they are installed. The tests open
# reports in it.
set -eu
command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    echo "chromium or chromedriver is missing: install them with 'sudo apt-get install chromium chromium-driver'" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver
