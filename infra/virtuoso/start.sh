#!/usr/bin/env bash
# Run one Virtuoso 7 server over the database in FOLDER, in the foreground, until it is stopped.
#
#   start.sh FOLDER
#
# Environment, with defaults:
#   MEMORY_GB      memory for page buffers (two thirds of the machine's: give each of several replicas its part)
#   THREADS        requests answered at the same time (32)
#   HTTP_HOST      address of the SPARQL endpoint (127.0.0.1). Queries need no account; writing needs the password of dba, which
#                  is `dba` unless load_freebase.sh or you changed it. Open it to trusted networks only
#   HTTP_PORT      8890
#   SQL_PORT       1111, on 127.0.0.1 only
#   MAX_ROWS       rows after which a result is cut (1000000)
#   QUERY_TIMEOUT  seconds (120)
#   READABLE       folders that the bulk loader may read, separated by commas (none)
set -euo pipefail

folder=${1:?usage: start.sh FOLDER}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v virtuoso-t >/dev/null || { echo "virtuoso-t is missing: apt-get install virtuoso-opensource-7" >&2; exit 2; }

total_kb=$(awk '/^MemTotal:/ { print $2 }' /proc/meminfo)
memory_gb=${MEMORY_GB:-$((total_kb * 2 / 3 / 1024 / 1024))}
buffers=$(awk -v gb="$memory_gb" 'BEGIN { printf "%d", 85000 * gb }')
threads=${THREADS:-32}

mkdir -p "$folder"
sed -e "s|@SQL_PORT@|${SQL_PORT:-1111}|" \
    -e "s|@HTTP_HOST@|${HTTP_HOST:-127.0.0.1}|" \
    -e "s|@HTTP_PORT@|${HTTP_PORT:-8890}|" \
    -e "s|@CONNECTIONS@|$((threads + $(nproc) + 4))|" \
    -e "s|@THREADS@|$threads|" \
    -e "s|@CORES@|$(nproc)|" \
    -e "s|@BUFFERS@|$buffers|" \
    -e "s|@DIRTY@|$((buffers * 3 / 4))|" \
    -e "s|@READABLE@|${READABLE:-}|" \
    -e "s|@MAX_ROWS@|${MAX_ROWS:-1000000}|" \
    -e "s|@QUERY_TIMEOUT@|${QUERY_TIMEOUT:-120}|" \
    "$here/virtuoso.ini.template" >"$folder/virtuoso.ini"

cd "$folder"
exec virtuoso-t -f +configfile virtuoso.ini
