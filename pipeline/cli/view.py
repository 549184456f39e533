"""`kgqa view`: show the questions of runs in a browser."""

from __future__ import annotations

import asyncio
import webbrowser
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.viewer.index import cache_folder
from pipeline.viewer.server import open_indexes, serve


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/view.yaml`."""

    port: Annotated[int, Field(ge=0, le=65_535)]
    open: bool


def run(arguments: Arguments) -> None:
    """Serve the pages until interrupted, and print their address."""
    plan = config.build_own(Plan, arguments.compose())
    indexes = open_indexes(arguments.run_folders(), cache_folder())

    def ready(address: str) -> None:
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if plan.open:
            webbrowser.open(address)

    asyncio.run(serve(indexes, plan.port, ready))
