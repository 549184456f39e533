"""A real Slurm of two nodes on this machine, in a network namespace of its own that has nothing but loopback."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration import loopback_network
from tests.integration.loopback_network import end, wait_for

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", *loopback_network.PROGRAMS)

_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job starts again when its credential has expired.
AuthInfo=socket={folder}/munge/socket,cred_expire=3
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=10
NodeName=a NodeHostname={host} NodeAddr=127.0.0.2 Port=6821 CPUs={cpus}
NodeName=b NodeHostname={host} NodeAddr=127.0.0.3 Port=6822 CPUs={cpus}
PartitionName=all Nodes=a,b Default=YES State=UP
"""


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [program for program in PROGRAMS if not shutil.which(program)]


@dataclass(frozen=True)
class Slurm:
    """The running daemons."""

    folder: Path
    inside: tuple[str, ...]
    """Runs a command in the network namespace."""

    def command(self, *words: str | Path) -> str:
        """Return the output of a command of Slurm."""
        # The programs of this environment, as after `. .venv/bin/activate`.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}
        done = subprocess.run(
            [*self.inside, *words], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm says of a job."""
        return dict(re.findall(r"(\w+)=(\S+)", self.command("scontrol", "show", "job", "--oneliner", number)))


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Start the daemons, and stop them with all jobs. Needs root."""
    with ExitStack() as stack:
        # Paths of sockets must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp")))
        running = Slurm(folder, stack.enter_context(loopback_network.loopback_network()))
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(folder=folder, host=host, cpus=os.cpu_count()))
        munge = folder / "munge"
        for each in (munge, folder / "state"):
            each.mkdir(mode=0o700)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o400)
        files = [
            f"--{name}={munge / name.partition('-')[0]}" for name in ("socket", "key-file", "pid-file", "seed-file")
        ]
        for words in (
            ["munged", "--foreground", "--force", "--origin=127.0.0.1", f"--log-file={munge / 'log'}", *files],
            ["slurmctld", "-D"],
            ["slurmd", "-D", "-N", "a"],
            ["slurmd", "-D", "-N", "b"],
        ):
            environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
            log = stack.enter_context((folder / f"{'-'.join(words[:1] + words[3:4])}.out").open("wb"))
            daemon = subprocess.Popen([*running.inside, *words], env=environment, stdout=log, stderr=log)
            stack.callback(end, daemon)
            if words[0] == "munged":
                wait_for((munge / "socket").exists, 10)
        wait_for(lambda: _idle(running), 60)
        try:
            yield running
        finally:
            running.command("scancel", "--user=root")
            wait_for(lambda: not running.command("squeue", "--noheader"), 60)


def _idle(running: Slurm) -> bool:
    try:
        return running.command("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle", "idle"]
    except AssertionError:  # it has just been started
        return False
