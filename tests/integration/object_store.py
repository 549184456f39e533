"""A real object store that speaks S3: OpenStack Swift, its four servers each a process on a loopback port."""

from __future__ import annotations

import getpass
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.net.subprocess_server import free_ports

SCRIPTS = Path(sys.executable).parent
KINDS = ("account", "container", "object")
KEY_ID, SECRET = "test:tester", "plant3d-s3cret"

_SHARED = """[DEFAULT]
swift_dir = {folder}
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
log_address = {folder}/no-syslog
"""
_STORAGE = """devices = {folder}
mount_check = false
disable_fallocate = true

[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """
[pipeline:main]
pipeline = healthcheck cache s3api tempauth copy slo proxy-server

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true

[filter:healthcheck]
use = egg:swift#healthcheck

[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:9

[filter:s3api]
use = egg:swift#s3api
s3_acl = false

[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin

[filter:copy]
use = egg:swift#copy

[filter:slo]
use = egg:swift#slo
"""


@dataclass(frozen=True)
class ObjectStore:
    """A running store."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it: the AWS variables, as for any S3-compatible store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start an empty store with its data in `folder`; it ends with the block."""
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = test\n[storage-policy:0]\nname = only\ndefault = yes\n"
    )
    ports = dict(zip((*KINDS, "proxy"), free_ports(4), strict=True))
    (folder / "disk").mkdir()
    for kind in KINDS:
        builder = [f"{SCRIPTS}/swift-ring-builder", str(folder / f"{kind}.builder")]
        for words in (["create", "1", "1", "0"], ["add", f"r1z1-127.0.0.1:{ports[kind]}/disk", "1"], ["rebalance"]):
            subprocess.run([*builder, *words], check=True, stdout=subprocess.DEVNULL)
    with ExitStack() as running:
        for kind, port in ports.items():
            values = {"folder": folder, "port": port, "kind": kind, "secret": SECRET, "user": getpass.getuser()}
            config = folder / f"{kind}-server.conf"
            config.write_text((_SHARED + (_PROXY if kind == "proxy" else _STORAGE)).format(**values))
            log = running.enter_context((folder / f"{kind}.log").open("wb"))
            process = subprocess.Popen([f"{SCRIPTS}/swift-{kind}-server", str(config)], stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.kill)
        url = f"http://127.0.0.1:{ports['proxy']}"
        _wait_until_healthy(f"{url}/healthcheck", folder / "proxy.log")
        yield ObjectStore(url)


def _wait_until_healthy(url: str, log: Path) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url):
                return
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)
