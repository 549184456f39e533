"""Checks of the machine: each finding with its fix."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.engine.doctor import machine
from pipeline.traces.folder import RunFolder
from tests.engine.doctor.support import point, worst


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose packages hide installed ones."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def pretend(folder: Path, name: str, version: str, *requires: str) -> None:
    """Install the metadata of a package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


class TestVersions:
    async def test_installed_packages_are_listed(self) -> None:
        findings = await machine.versions(point())
        assert findings[0].level == "ok"
        assert "Python 3." in findings[0].found
        assert "ray 2." in findings[0].found

    async def test_a_package_that_requires_another_torch(self, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")  # which the vLLM of the tests wants
        pretend(packages, "torchvision", "0.20.1+cpu", "torch==2.5.1", "numpy", "gdown>=4.7; extra == 'gdown'")
        assert worst(await machine.versions(point())) == (
            "problem",
            "torchvision 0.20.1+cpu requires torch==2.5.1, not 2.13.0+cpu",
            "Install the required version: pip install 'torch==2.5.1', or remove torchvision.",
        )

    async def test_a_companion_that_was_built_for_another_torch(self, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")
        pretend(packages, "torchvision", "0.28.0", "torch==2.13.0")
        level, found, fix = worst(await machine.versions(point()))
        assert (level, fix) == ("problem", "Remove it, because nothing here needs it: pip uninstall torchvision.")
        assert found.startswith("torchvision 0.28.0 was not built for torch 2.13.0+cpu")

    async def test_two_builds_of_faiss(self, packages: Path) -> None:
        for name in ("faiss_cpu", "faiss_gpu"):
            pretend(packages, name, "1.15.1")
        level, found, fix = worst(await machine.versions(point()))
        assert (level, found) == ("problem", "faiss-cpu and faiss-gpu are both installed, over each other")
        assert fix.startswith("Keep one: pip uninstall faiss-cpu faiss-gpu, then pip install faiss-gpu")

    async def test_what_only_an_unused_extra_requires(self, packages: Path) -> None:
        pretend(packages, "ray", "2.60.0", "vllm==0.32.0; extra == 'llm'")
        pretend(packages, "vllm", "0.33.0")
        assert {finding.level for finding in await machine.versions(point())} == {"ok"}


class TestRunFolder:
    async def test_a_good_folder_is_unchanged(self, tmp_path: Path) -> None:
        (finding,) = await machine.run_folder(point(f"run.dir={tmp_path}/runs/new"))
        assert (finding.level, os.listdir(tmp_path)) == ("ok", [])

    async def test_a_folder_without_permission_to_write(self) -> None:
        level, found, fix = worst(await machine.run_folder(point("run.dir=/sys/kgqa")))
        assert (level, fix) == ("problem", "Name another run.dir, or get permission to write there.")
        assert found.startswith("/sys/kgqa cannot be written to: ")

    @pytest.mark.parametrize(
        ("free", "level", "fix"),
        [
            (10 << 20, "problem", "Free some space there, or name a run.dir on another disk."),
            (1 << 30, "warning", "Free about half a kilobyte per model call, or name another run.dir."),
        ],
    )
    async def test_too_little_free_space(
        self, free: int, level: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        found = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert found == (level, f"{tmp_path}/run: {free / 2**30:.1f} GiB free", fix)

    async def test_a_folder_that_another_process_uses(self, tmp_path: Path) -> None:
        with RunFolder(tmp_path).held():
            found = worst(await machine.run_folder(point(f"run.dir={tmp_path}")))
        used = f"{tmp_path} is in use by another process"
        assert found == ("problem", used, "Wait until it ends, or name another run.dir.")

    async def test_a_file_system_that_does_not_sync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fsync(_: int) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(os, "fsync", fsync)
        level, _, fix = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert level == "warning"
        assert fix.startswith("Name a run.dir on a local disk, or expect to repeat the last shards")

    @pytest.mark.parametrize("error", [OSError(95, "Operation not supported"), None], ids=["refused", "without effect"])
    async def test_a_file_system_without_locks(
        self, error: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def flock(*_: object) -> None:
            if error:
                raise error

        monkeypatch.setattr(fcntl, "flock", flock)
        level, _, fix = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert level == "warning"
        assert fix == "Start a run only once, or name a run.dir on a file system with locks."


class TestDescriptors:
    @pytest.fixture
    def few(self) -> Iterator[int]:
        """A soft limit of 300 open files."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        yield hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def test_a_limit_that_is_high_enough(self) -> None:
        (finding,) = await machine.descriptors(point("engine.concurrency=1"))
        assert finding.level == "ok"

    async def test_a_limit_that_the_user_can_raise(self, few: int) -> None:
        assert worst(await machine.descriptors(point("engine.concurrency=16"))) == (
            "warning",
            "300 allowed, but engine.concurrency=16 may want 320",
            "Raise the limit before the run (ulimit -n 320), or lower engine.concurrency.",
        )

    async def test_a_limit_that_only_an_administrator_can_raise(self, few: int) -> None:
        level, _, fix = worst(await machine.descriptors(point(f"engine.concurrency={few}")))
        assert (level, fix) == (
            "warning",
            f"Have an administrator raise the hard limit of {few:,} open files, or lower engine.concurrency.",
        )


class TestGpu:
    @pytest.fixture
    def smi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine whose `nvidia-smi` lists one GPU."""
        script = tmp_path / "nvidia-smi"
        script.write_text("#!/bin/sh\necho 'NVIDIA H100, 1024 MiB, 81559 MiB'\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    CUDA = ("retrieval=dense", "retrieval.encoder.device=cuda:0")

    async def test_no_gpu_is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        (finding,) = await machine.gpu(point())
        assert (finding.level, finding.found) == (
            "ok",
            "there is none here, and this configuration needs none in this process",
        )

    async def test_a_gpu_is_needed_and_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        assert worst(await machine.gpu(point(*self.CUDA))) == (
            "problem",
            "there is none here, and retrieval.encoder.device=cuda:0 needs one",
            "Run this on a machine with a GPU, name a cluster with one (engine.address), or use the CPU: "
            "retrieval.encoder.device=null.",
        )

    @pytest.mark.parametrize(
        ("words", "level"),
        [
            ((), "problem"),
            (("llm.resources={CPU: 1}",), "ok"),  # as the advice says
            (("engine=ray", "engine.address=127.0.0.1:6379"), "ok"),
        ],
    )
    async def test_a_model_that_is_served_here_needs_a_gpu(
        self, words: tuple[str, ...], level: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        (finding,) = await machine.gpu(point("llm=serve", "llm.model=org/llama", *words))
        assert finding.level == level
        assert (finding.fix or "").endswith("or use the CPU: 'llm.resources={CPU: 1}'.") is (level == "problem")

    async def test_the_gpu_is_listed(self, smi: None) -> None:
        (finding,) = await machine.gpu(point())
        assert finding.found == "NVIDIA H100: 1024 MiB of 81559 MiB used"

    async def test_a_torch_that_cannot_use_the_gpu(self, smi: None, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")
        level, _, fix = worst(await machine.gpu(point(*self.CUDA)))
        assert level == "problem"
        assert fix == "Install the CUDA build of torch, or use the CPU: retrieval.encoder.device=null."


class TestRay:
    async def test_ray_is_not_used(self) -> None:
        (finding,) = await machine.ray_cluster(point())
        assert finding.found == "not used: engine=local"

    async def test_no_cluster_at_the_address(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert worst(await machine.ray_cluster(point("engine=ray", f"engine.address={address}"))) == (
            "problem",
            f"no cluster answers at {address}: Connection refused",
            "Start one there (ray start --head), or correct engine.address or RAY_ADDRESS.",
        )

    async def test_more_workers_than_cpus_on_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        level, found, fix = worst(await machine.ray_cluster(point("engine=ray", "engine.workers=4000")))
        assert (level, fix) == (
            "warning",
            "Lower engine.workers or engine.cpus_per_worker, or name a cluster in engine.address.",
        )
        assert "4000 CPUs are reserved" in found
