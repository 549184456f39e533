"""Runs Virtuoso 7 servers on this machine: builds a database by bulk load and serves replicas of it.

Servers bind to 127.0.0.1 only. They keep Virtuoso's default `dba`/`dba` account, which is reachable only from this
machine. SPARQL over HTTP is anonymous and cannot write. A server ends with the thread that started it, so that it
never outlives a killed run.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pydantic.dataclasses
from pydantic import ConfigDict, PositiveFloat, PositiveInt

from pipeline.errors import UserError
from pipeline.net.subprocess_server import LOOPBACK, SubprocessServer, answers, free_ports, is_free

GRAPH = "urn:kgqa:graph"
"""The named graph of the loaded triples. A query without a graph also sees the server's system graphs."""

DATABASE_FILE = "virtuoso.db"
_INI_TEMPLATE = Path(__file__).with_name("virtuoso.ini")

_START_TIMEOUT_S = 600


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class VirtuosoConfig:
    """Resources and limits of a server. The keys are described in `conf/graph_serve.yaml`."""

    memory_gb: PositiveFloat
    """Memory for page buffers. Give all replicas together two thirds of the machine's memory (specification §8.8)."""
    threads: PositiveInt
    """Requests answered at the same time."""
    max_rows: PositiveInt
    """`ResultSetMaxRows`: the server cuts longer results, which clients must detect (specification §8.6)."""
    query_timeout_s: PositiveInt
    """`MaxQueryExecutionTime`: afterwards the server returns a partial result and marks it as partial."""


@dataclass(slots=True)
class VirtuosoServer(SubprocessServer):
    """One `virtuoso-t` process that serves the database in `folder`."""

    folder: Path
    """The folder of the database file (created if missing), the generated `virtuoso.ini` and `server.log`."""
    config: VirtuosoConfig
    readable: tuple[Path, ...] = ()
    """Folders from which `load` may read files (`DirsAllowed`)."""
    http_port: int = 0
    """0 takes a free port at the first start, as `sql_port` always does."""
    sql_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the SPARQL endpoint, as in `kg.endpoints`."""
        return f"http://{LOOPBACK}:{self.http_port}/sparql"

    def start(self) -> None:
        """Start the server and return once it answers a query.

        Raises UserError if Virtuoso is not installed, if another server runs in the same folder or uses the port, or
        if the start fails.
        """
        _require_virtuoso()
        self.folder.mkdir(parents=True, exist_ok=True)
        first_start, given = not self.sql_port, self.http_port
        for _ in range(5):
            if given and not is_free(LOOPBACK, given):
                raise UserError(f"port {given} of {LOOPBACK} is in use: stop what uses it, or choose another port")
            if first_start:
                free, self.sql_port = free_ports(2)
                self.http_port = given or free
            self._serve()
            if self._wait_until_healthy():
                return
            if "Failed to start listening" not in self._log() or not first_start:
                break
        log = " ".join(self._log().split())
        if running := re.search(r"already runn+ing \(pid (\d+)\)", log):
            raise UserError(f"a Virtuoso server (process {running[1]}) already runs in {self.folder}; stop it first")
        raise UserError(f"Virtuoso did not start; the end of {self.folder / 'server.log'}: {log[-600:]}")

    def load(self, files: Sequence[Path]) -> None:
        """Bulk load N-Triples files (plain or gzip) and write a checkpoint.

        Raises UserError with Virtuoso's message if a file cannot be loaded.
        """
        adds = "".join(f"ld_add('{_sql(str(file.resolve()))}', '{GRAPH}'); " for file in files)
        self._isql(f"{adds}rdf_loader_run(); checkpoint;")
        failed = self._isql(
            "select concat(ll_file, ': ', coalesce(ll_error, 'not loaded')) from DB.DBA.load_list "
            "where ll_state <> 2 or ll_error is not null;"
        ).strip()
        if failed:
            raise UserError(f"Virtuoso could not load {failed}")

    def _serve(self) -> None:
        (self.folder / "virtuoso.ini").write_text(self._ini(), encoding="utf-8")
        command = ["virtuoso-t", "-f", "+configfile", "virtuoso.ini"]
        self._launch(command, self.folder / "server.log", cwd=self.folder)

    def _wait_until_healthy(self) -> bool:
        assert self.process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.kill()
                return False
            # The log comes first: until it reports success, another program may be answering at this port.
            if "Server online" in self._log() and is_healthy(self.endpoint):
                return True
            time.sleep(0.05)
        self.kill()
        return False

    def _isql(self, sql: str) -> str:
        account = [f"{LOOPBACK}:{self.sql_port}", "dba", "dba"]
        arguments = [*account, "VERBOSE=OFF", "BANNER=OFF", "PROMPT=OFF", f"exec={sql}"]
        done = subprocess.run(["isql-vt", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607
        if done.returncode or "*** Error" in done.stdout + done.stderr:
            raise UserError(f"isql-vt failed: {(done.stderr + done.stdout).strip()[:600]}")
        return done.stdout

    def _log(self) -> str:
        return (self.folder / "server.log").read_text(encoding="utf-8", errors="replace")

    def _ini(self) -> str:
        # 85,000 pages of 8 KB per GB of memory is the ratio of Virtuoso's sample configuration.
        buffers = int(85_000 * self.config.memory_gb)
        return _INI_TEMPLATE.read_text(encoding="utf-8").format(
            sql=f"{LOOPBACK}:{self.sql_port}",
            http=f"{LOOPBACK}:{self.http_port}",
            readable=", ".join(str(folder.resolve()) for folder in self.readable),
            buffers=buffers,
            dirty=buffers * 3 // 4,
            threads=self.config.threads,
            connections=self.config.threads + 4,
            rows=self.config.max_rows,
            timeout=self.config.query_timeout_s,
        )


def build_database(files: Sequence[Path], folder: Path, config: VirtuosoConfig) -> None:
    """Load N-Triples files into a new database in `folder`. After an error there is no folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        partial = Path(temporary, "database")
        with VirtuosoServer(partial, config, tuple({file.parent for file in files})) as server:
            server.load(files)
        partial.replace(folder)


@contextlib.contextmanager
def replicas(
    database: Path, count: int, folder: Path, config: VirtuosoConfig, *, first_port: int | None = None
) -> Iterator[list[VirtuosoServer]]:
    """Serve `count` copies of the database folder `database` from subfolders of `folder`, and stop them at the end.

    A copy that an earlier call made from the same database file is reused. They use `first_port` and the ports that
    follow, or free ones. Raises UserError like `VirtuosoServer.start`, and if a copy cannot be made.
    """
    with contextlib.ExitStack() as running:
        servers = []
        for number in range(count):
            copy = folder / f"replica-{number + 1}"
            _copy_database(database, copy)
            server = VirtuosoServer(copy, config, http_port=first_port + number if first_port else 0)
            servers.append(running.enter_context(server))
        yield servers


def is_healthy(endpoint: str) -> bool:
    """Return whether a SPARQL endpoint answers a trivial query."""
    query = urllib.parse.urlencode({"query": "ASK {}"}).encode()
    return answers(endpoint, query)


def _require_virtuoso() -> None:
    for program in ("virtuoso-t", "isql-vt"):
        if not shutil.which(program):
            raise UserError(f"{program} is not installed; on Debian or Ubuntu: apt-get install virtuoso-opensource-7")


def _copy_database(database: Path, copy: Path) -> None:
    source = database / DATABASE_FILE
    if not source.is_file():
        raise UserError(f"{database} contains no {DATABASE_FILE}; load a graph into it first")
    if (pid := _server_pid(database)) is not None:
        raise UserError(
            f"a Virtuoso server (process {pid}) is using {database}, which may change during the copy; stop it first"
        )
    # Facts loaded since the last checkpoint are only in the transaction log, which the server replays at its start.
    files = [file for file in (source, database / "virtuoso.trx") if file.is_file()]
    stats = [(file, file.stat()) for file in files]
    origin = "\n".join(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}" for file, stat in stats)
    stamp = copy / "copied-from"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == origin:
        return
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    # `cp` shares blocks if the file system can, and skips holes: these files may have tens of gigabytes.
    for file in files:
        command = ["cp", "--reflink=auto", "--sparse=always", str(file), str(copy / file.name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise UserError(f"{database} cannot be copied for a replica: {done.stderr.strip()}")
    stamp.write_text(origin, encoding="utf-8")


def _server_pid(database: Path) -> int | None:
    """Return the process id of the server that has the database open, or None. A killed server leaves its lock file."""
    lock = database / "virtuoso.lck"
    pid = re.search(r"VIRT_PID=(\d+)", lock.read_text(encoding="utf-8")) if lock.is_file() else None
    if pid is None or not Path("/proc", pid[1]).exists():
        return None
    return int(pid[1]) if "virtuoso" in Path("/proc", pid[1], "comm").read_text(encoding="utf-8") else None


def _sql(text: str) -> str:
    return text.replace("'", "''")
