"""`kgqa view`: show the questions of runs in a browser."""

from __future__ import annotations

import asyncio
import webbrowser

from pipeline.cli.arguments import Arguments
from pipeline.traces.storage import storage_path
from pipeline.viewer.index import cache_folder
from pipeline.viewer.server import open_indexes, serve


def run(arguments: Arguments) -> None:
    """Serve the pages until interrupted, and print their address."""
    keys = arguments.compose()
    indexes = open_indexes([storage_path(word) for word in arguments.words], cache_folder())

    def ready(address: str) -> None:
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if keys["open"]:
            webbrowser.open(address)

    asyncio.run(serve(indexes, keys["port"], ready))
