#!/usr/bin/env bash
# Write requirements.cpu.txt and requirements.gpu.txt: what the images install, in the versions of the test environment.
# Run it in the root of the project, after `make test`.
set -euo pipefail

used=$(mktemp)
trap 'rm -f "$used"' EXIT
# The builds of vLLM and torch for GPUs pin other versions of these than those for CPUs.
.venv/bin/python -m pip freeze --exclude-editable \
    | grep --invert-match --extended-regexp '^(torch|triton|apache-tvm-ffi)' >"$used"

# lock FILE TORCH 'EXTRA…' [WORD…]
lock() {
    local extras=()
    for extra in $3; do extras+=(--extra "$extra"); done
    {
        echo "# Written by lock.sh."
        .venv/bin/uv pip compile --quiet --no-header --no-annotate --no-config --python-version 3.11 \
            --python-platform x86_64-manylinux_2_28 --constraint "$used" --constraint <(echo "torch==$2") \
            "${extras[@]}" "${@:4}" pyproject.toml
    } >"infra/docker/$1.partial"
    mv "infra/docker/$1.partial" "infra/docker/$1"
}

torch=$(sed --quiet 's/^torch==//p' constraints.txt)
# torch's builds for CPUs are on an index of their own.
lock requirements.cpu.txt "$torch+cpu" 'dense hf s3' \
    --extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match
lock requirements.gpu.txt "$torch" 'gpu gpu-search hf s3 train'
