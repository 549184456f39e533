#!/usr/bin/env bash
# Serve the database in FOLDER in the foreground, for a container. Copy SNAPSHOT first if FOLDER has no database.
#
#   replica.sh FOLDER [SNAPSHOT]
#
# SNAPSHOT is a folder with a virtuoso.db. Without it, FOLDER may be a clone of one. A database is served only if its
# last server wrote a checkpoint before it stopped: facts that were loaded after the checkpoint may be in no file.
# Environment as in start.sh.
set -euo pipefail

folder=${1:?usage: replica.sh FOLDER [SNAPSHOT]}
snapshot=${2:-$folder}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Written once the database in FOLDER is known to be complete. It stays complete if its own server is killed.
accepted=$folder/accepted

refuse() { echo "$1" >&2; exit 2; }

require_checkpoint() {
    local repair="serve it once with start.sh, see whether it holds all facts, and stop it with SIGTERM"
    [[ -e $snapshot/virtuoso.db ]] || refuse "$snapshot holds no virtuoso.db: load a graph into it first"
    [[ ! -e $snapshot/virtuoso.lck ]] || refuse "$snapshot is in use, or its server was killed (virtuoso.lck): $repair"
    # Directly after a checkpoint, the log has three records of 185 bytes in all. They name the server and its version.
    # One transaction has at least 80 bytes more.
    local bytes
    bytes=$(stat --format=%s "$snapshot/virtuoso.trx" 2>/dev/null || echo 0)
    ((bytes <= 200)) || refuse "$snapshot has changes after its last checkpoint (virtuoso.trx, $bytes bytes): $repair"
}

mkdir -p "$folder"
if [[ ! -e $accepted ]]; then
    require_checkpoint
    if [[ ! $snapshot -ef $folder ]]; then
        cp --reflink=auto --sparse=always "$snapshot/virtuoso.db" "$folder/virtuoso.db.partial"
        mv "$folder/virtuoso.db.partial" "$folder/virtuoso.db"
    fi
    touch "$accepted"
fi
exec "$here/start.sh" "$folder"
