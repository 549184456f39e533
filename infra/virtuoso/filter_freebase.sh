#!/usr/bin/env bash
# Reduce the Freebase RDF dump to what question answering uses: facts between Freebase nodes, and literals without a
# language or in English. Malformed lines of N-Triples are dropped, because one of them stops a loader.
#
#   filter_freebase.sh DUMP.gz PARTS
#
# DUMP.gz is the dump as published (gzip, one fact per line, fields separated by tabs). PARTS is a folder that must not
# exist yet. It gets gzip files of LINES_PER_PART facts each (20,000,000), so that several loaders can work at the same time.
# ALL_LANGUAGES=1 keeps names in every language. The name lookup uses them if there is no English name.
set -euo pipefail

dump=${1:?usage: filter_freebase.sh DUMP.gz PARTS}
parts=${2:?usage: filter_freebase.sh DUMP.gz PARTS}
unzip=$(command -v pigz || command -v gzip)

mkdir "$parts"
trap 'rm -rf "$parts"' ERR INT TERM

name='<http://rdf\.freebase\.com/ns/[A-Za-z0-9_.~%-]+>'
if [[ -n ${ALL_LANGUAGES:-} ]]; then language='@[A-Za-z]+(-[A-Za-z0-9]+)*'; else language='@en'; fi
literal="\"([^\"\\\\]|\\\\[tbnrf\"'\\\\]|\\\\u[0-9A-Fa-f]{4}|\\\\U[0-9A-Fa-f]{8})*\"($language|\\^\\^<[^<>\"{}|^\`\\\\ ]+>)?"
tab=$'\t'

"$unzip" -dc "$dump" |
    LC_ALL=C grep -E "^$name$tab$name$tab($name|$literal)$tab\\.\$" |
    split --lines="${LINES_PER_PART:-20000000}" --numeric-suffixes --suffix-length=4 --additional-suffix=.nt.gz \
        --filter="${unzip} -c > \"\$FILE\"" - "$parts/freebase-"
trap - ERR INT TERM
echo "$(find "$parts" -name '*.nt.gz' | wc -l) parts in $parts"
