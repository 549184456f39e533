#!/usr/bin/env bash
# Load N-Triples files into a new Virtuoso database, with several loaders at the same time, and print its fingerprint.
#
#   load_freebase.sh PARTS DATABASE
#
# PARTS is a folder of .nt or .nt.gz files (filter_freebase.sh makes one), DATABASE a folder that must not exist yet.
# It is written as DATABASE.partial and renamed at the end, so DATABASE is always complete. Environment as in start.sh,
# and LOADERS (three quarters of the cores) and DBA_PASSWORD (random and not stored, so that nobody can write again).
set -euo pipefail

usage="usage: load_freebase.sh PARTS DATABASE"
parts=$(realpath "${1:?$usage}")
database=$(realpath "${2:?$usage}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
loaders=${LOADERS:-$(( ($(nproc) * 3 + 3) / 4 ))}
export SQL_PORT=${SQL_PORT:-1111} HTTP_PORT=${HTTP_PORT:-8890}

if [[ -e $database ]]; then echo "$database exists already: name another folder" >&2; exit 2; fi
rm -rf "$database.partial"

sql() { isql-vt "127.0.0.1:$SQL_PORT" dba dba VERBOSE=OFF BANNER=OFF PROMPT=OFF ERRORS=STDOUT "exec=$1"; }

mkdir -p "$database.partial"
log=$database.partial/server.log
READABLE=$parts HTTP_HOST=127.0.0.1 "$here/start.sh" "$database.partial" >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until sql "select 1;" >/dev/null 2>&1; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" >&2; exit 1; }
    sleep 1
done

for mask in '%.nt' '%.nt.gz'; do sql "ld_dir('${parts//\'/\'\'}', '$mask', 'urn:kgqa:graph');"; done
running=()
for ((i = 0; i < loaders; i++)); do
    sql "rdf_loader_run();" &
    running+=("$!")
done
wait "${running[@]}"
sql "checkpoint;"

failed=$(sql "select concat(ll_file, ': ', coalesce(ll_error, 'not loaded')) from DB.DBA.load_list where ll_state <> 2 or ll_error is not null;")
if [[ -n ${failed//[[:space:]]/} ]]; then printf 'not loaded:\n%s\n' "$failed" >&2; exit 1; fi

sql "$(cat "$here/fingerprint.sql")" | tee "$database.partial/contents.txt"
# Replace the well-known default password, because a served graph may be reachable from other machines.
password=${DBA_PASSWORD:-$(head -c 24 /dev/urandom | base64 | tr -d '/+=')}
sql "user_set_password('dba', '${password//\'/\'\'}'); checkpoint;"
kill "$server"
wait "$server" || true
trap - EXIT
mv "$database.partial" "$database"
echo "loaded: $database"
