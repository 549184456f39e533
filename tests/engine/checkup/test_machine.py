"""What is told of the machine: each mend, provoked."""

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

from pipeline.engine.checkup import machine
from tests.engine.checkup.support import point, worst


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose packages come before those that are installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def pretend(folder: Path, name: str, version: str, *requires: str) -> None:
    """Install the metadata of a package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


class TestVersions:
    async def test_what_is_installed_is_listed(self) -> None:
        findings = await machine.versions(point())
        assert findings[0].level == "ok"
        assert "Python 3." in findings[0].found
        assert "ray 2." in findings[0].found

    async def test_a_package_that_wants_another_torch(self, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")  # which the vLLM of the tests wants
        pretend(packages, "torchvision", "0.20.1+cpu", "torch==2.5.1", "numpy", "gdown>=4.7; extra == 'gdown'")
        assert worst(await machine.versions(point())) == (
            "problem",
            "torchvision 0.20.1+cpu wants torch==2.5.1, and 2.13.0+cpu is installed",
            "Install the version it wants: pip install 'torch==2.5.1', or remove torchvision.",
        )

    async def test_a_companion_that_was_built_for_another_torch(self, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")
        pretend(packages, "torchvision", "0.28.0", "torch==2.13.0")
        level, found, mend = worst(await machine.versions(point()))
        assert (level, mend) == ("problem", "Remove it, nothing here needs it: pip uninstall torchvision.")
        assert found.startswith("torchvision 0.28.0 was not built for torch 2.13.0+cpu")

    async def test_a_vllm_that_ray_was_not_made_for(self, packages: Path) -> None:
        pretend(packages, "ray", "2.60.0", "vllm==0.32.0; extra == 'llm'")
        pretend(packages, "vllm", "0.11.0")
        assert worst(await machine.versions(point()))[1] == "ray 2.60.0 wants vllm==0.32.0, and 0.11.0 is installed"


class TestRunFolder:
    async def test_a_good_one_is_left_as_it_was(self, tmp_path: Path) -> None:
        (finding,) = await machine.run_folder(point(f"run.dir={tmp_path}/runs/new"))
        assert (finding.level, os.listdir(tmp_path)) == ("ok", [])

    async def test_where_nobody_may_write(self) -> None:
        level, found, mend = worst(await machine.run_folder(point("run.dir=/sys/kgqa")))
        assert (level, mend) == ("problem", "Name another place by run.dir, or get the right to write there.")
        assert found.startswith("/sys/kgqa cannot be written to: ")

    @pytest.mark.parametrize(
        ("free", "level", "mend"),
        [
            (10 << 20, "problem", "Make room there, or name a run.dir on another disk."),
            (1 << 30, "warning", "Make room for about half a kilobyte per model call, or name another run.dir."),
        ],
    )
    async def test_too_little_room(
        self, free: int, level: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        found = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert found == (level, f"{tmp_path}/run: {free / 2**30:.1f} GiB free", mend)

    async def test_a_file_system_that_does_not_sync(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fsync(_: int) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(os, "fsync", fsync)
        level, _, mend = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert level == "warning"
        assert mend.startswith("Name a run.dir on a local disk, or count on repeating the last shards")

    @pytest.mark.parametrize("error", [OSError(95, "Operation not supported"), None], ids=["refused", "without effect"])
    async def test_a_file_system_without_locks(
        self, error: OSError | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def flock(*_: object) -> None:
            if error:
                raise error

        monkeypatch.setattr(fcntl, "flock", flock)
        level, _, mend = worst(await machine.run_folder(point(f"run.dir={tmp_path}/run")))
        assert level == "warning"
        assert mend == "Take care to start a run once only, or name a run.dir on a file system with locks."


class TestDescriptors:
    @pytest.fixture
    def few(self) -> Iterator[int]:
        """A limit of 300 open files, which may be raised again."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        yield hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def test_enough(self) -> None:
        (finding,) = await machine.descriptors(point("engine.concurrency=1"))
        assert finding.level == "ok"

    async def test_a_limit_that_the_user_may_raise(self, few: int) -> None:
        assert worst(await machine.descriptors(point("engine.concurrency=16"))) == (
            "warning",
            "300 allowed, but engine.concurrency=16 may want 320",
            "Raise the limit before the run (ulimit -n 320), or lower engine.concurrency.",
        )

    async def test_a_limit_that_only_an_administrator_may_raise(self, few: int) -> None:
        level, _, mend = worst(await machine.descriptors(point(f"engine.concurrency={few}")))
        assert (level, mend) == (
            "warning",
            f"Have an administrator raise the hard limit of {few:,} open files, or lower engine.concurrency.",
        )


class TestGpu:
    @pytest.fixture
    def smi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A machine with one card, as its `nvidia-smi` says."""
        script = tmp_path / "nvidia-smi"
        script.write_text("#!/bin/sh\necho 'NVIDIA H100, 1024 MiB, 81559 MiB'\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    CUDA = ("retrieval=dense", "retrieval.encoder.device=cuda:0")

    async def test_none_is_needed_and_that_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        (finding,) = await machine.gpu(point())
        assert (finding.level, finding.found) == (
            "ok",
            "there is none here, and this configuration needs none in this process",
        )

    async def test_one_is_wanted_where_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        assert worst(await machine.gpu(point(*self.CUDA))) == (
            "problem",
            "there is none here, and retrieval.encoder.device=cuda:0 wants one",
            "Run this where a GPU and its driver are, name a cluster with one (engine.address), or take the CPU: "
            "device=null, llm.resources={CPU: 1}.",
        )

    @pytest.mark.parametrize(
        ("words", "level"),
        [
            ((), "problem"),
            (("llm.resources={CPU: 1}",), "ok"),
            (("engine=ray", "engine.address=127.0.0.1:6379"), "ok"),
        ],
    )
    async def test_a_model_that_is_served_here_wants_one(
        self, words: tuple[str, ...], level: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "")
        (finding,) = await machine.gpu(point("llm=serve", "llm.model=org/llama", *words))
        assert finding.level == level

    async def test_the_card_is_shown(self, smi: None) -> None:
        (finding,) = await machine.gpu(point())
        assert finding.found == "NVIDIA H100: 1024 MiB of 81559 MiB used"

    async def test_a_torch_that_cannot_use_it(self, smi: None, packages: Path) -> None:
        pretend(packages, "torch", "2.13.0+cpu")
        level, _, mend = worst(await machine.gpu(point(*self.CUDA)))
        assert level == "problem"
        assert mend == "Install the CUDA build of torch, or leave the device null for the CPU."


class TestRay:
    async def test_it_is_not_used(self) -> None:
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
        level, found, mend = worst(await machine.ray_cluster(point("engine=ray", "engine.workers=4000")))
        assert (level, mend) == (
            "warning",
            f"Set engine.workers={os.cpu_count()}, or name a cluster by engine.address.",
        )
        assert "4000 CPUs are reserved" in found
