#!/usr/bin/env bash
# Serve the database in FOLDER in the foreground, for a container. Copy SNAPSHOT first if FOLDER has no database.
#
#   replica.sh FOLDER [SNAPSHOT]
#
# SNAPSHOT is a folder with a virtuoso.db.
# Environment as in start.sh.
set -euo pipefail

folder=${1:?usage: replica.sh FOLDER [SNAPSHOT]}
snapshot=${2:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

mkdir -p "$folder"
if [[ ! -e $folder/virtuoso.db && -n $snapshot ]]; then
    cp --reflink=auto --sparse=always "$snapshot/virtuoso.db" "$folder/virtuoso.db.partial"
    mv "$folder/virtuoso.db.partial" "$folder/virtuoso.db"
fi
[[ -e $folder/virtuoso.db ]] || { echo "$folder holds no virtuoso.db: load a graph into it first" >&2; exit 2; }
exec "$here/start.sh" "$folder"
