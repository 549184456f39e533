"""Starts vLLM's server with its workers in an existing placement group of Ray, on several machines if need be.

`python -m pipeline.llm.serve.in_group GROUP ARGUMENT…`: the id of the group, and the arguments of vLLM's own server,
which would reserve a group of its own, with a placement of its own.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup


def main() -> None:
    """Run the server in this process."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    group = sys.argv.pop(1)
    ray.init(log_to_driver=False)  # the cluster of RAY_ADDRESS
    place(AsyncEngineArgs, PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)


def place(arguments: Any, group: PlacementGroup) -> None:
    """Make the engines that are created from vLLM's arguments use the group, as they do inside an actor of it."""
    create = arguments.create_engine_config

    def create_in_group(self: Any, *words: Any, **keys: Any) -> Any:
        config = create(self, *words, **keys)
        config.parallel_config.placement_group = group
        return config

    arguments.create_engine_config = create_in_group


if __name__ == "__main__":
    main()
