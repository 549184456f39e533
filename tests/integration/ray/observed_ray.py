"""A Ray node that stays up after a run on it, so that its metrics can be read: `observed_ray.py FOLDER WORD…`.

FOLDER is Ray's; the words are those of `kgqa`. Prints the port of the node's metrics after the run, and ends when its
standard input does.
"""

from __future__ import annotations

import socket
import sys

import ray

from pipeline.cli.main import main


def run(folder: str, words: list[str]) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=True,  # which writes the list of nodes for Prometheus
        dashboard_host="127.0.0.1",
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
        _metrics_export_port=port,
        _system_config={"metrics_report_interval_ms": 500},
    )
    code = main(words)
    print(port, flush=True)
    sys.stdin.read()
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
