"""Clusters of several Ray nodes on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray._common.utils import get_default_ray_temp_dir
from ray._private.utils import write_ray_address
from ray.cluster_utils import Cluster

LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for this machine's address in the network."""


@contextmanager
def cluster_of_head(**head: Any) -> Iterator[Cluster]:
    """A cluster of one node with these arguments; tests add others.

    It has a folder of its own, with a short name: a job finds its cluster by what lies there, and sockets are in it.
    """
    # Ray's test cluster writes its address there too, and fails where Ray has never made that folder.
    Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
    # Ray's processes may still write there while they end.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        arguments = {"include_dashboard": False, "temp_dir": folder, "node_ip_address": LOOPBACK} | head
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        try:
            write_ray_address(cluster.address, folder)
            yield cluster
        finally:
            cluster.shutdown()
