"""The local web server. It answers only this machine, changes nothing, and no page loads anything from elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from aiohttp import web

from pipeline.analysis.question_trace import QuestionTrace
from pipeline.errors import StorageError, UserError
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath
from pipeline.viewer import page_content
from pipeline.viewer.index import OUTCOMES, RunIndex, State
from pipeline.viewer.index_queries import (
    CHANGES,
    COSTS,
    Change,
    Filters,
    compare,
    find_side,
    list_questions,
    list_types,
    question_url,
)
from pipeline.viewer.render_page import HERE, MOST_CHARACTERS, render

HOST = "127.0.0.1"
_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which a browser may ask. With another one, a page from elsewhere may have bent its own name to this
address (DNS rebinding)."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {"style.css": "text/css", "script.js": "text/javascript", "icon.svg": "image/svg+xml"}
_REFRESH_S = 2.0
"""Seconds between two looks for new shards."""
_REMEMBERED = 8
"""Questions kept in memory: a click on a step reads nothing again."""
_QUESTION = "/{run}/{configuration:[0-9]{1,9}}/{question:.+}"


def open_indexes(paths: Sequence[StoragePath], cache: Path) -> list[RunIndex]:
    """Open the tables of run folders. Folders of one name get a number. Raises UserError if one is not a run."""
    indexes: list[RunIndex] = []
    for path in dict.fromkeys(paths):
        folder = RunFolder(path)
        stem = (path.absolute() if isinstance(path, Path) else path).name or "run"
        taken = {each.name for each in indexes}
        numbered = (f"{stem}-{number}" for number in range(2, len(paths) + 2))
        indexes.append(
            RunIndex(folder, stem if stem not in taken else next(n for n in numbered if n not in taken), cache)
        )
    return indexes


class Viewer:
    """The web application over some runs."""

    def __init__(self, indexes: Sequence[RunIndex]) -> None:
        self._indexes = indexes
        self._stop = threading.Event()
        self._problem = ""
        self._read = lru_cache(maxsize=_REMEMBERED)(self._read_trace)

    def application(self) -> web.Application:
        """Return the application; it looks for new shards while it runs."""
        application = web.Application(middlewares=[_guard], client_max_size=0)
        application.router.add_get("/", self._list)
        application.router.add_get("/compare", self._compare)
        application.router.add_get("/state", self._state)
        application.router.add_get("/-/{file}", _file)
        application.router.add_get(_QUESTION, self._question)
        application.cleanup_ctx.append(self._updating)
        return application

    async def _updating(self, _: web.Application) -> Any:
        task = asyncio.create_task(self._follow())
        yield
        self._stop.set()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def _follow(self) -> None:
        """Add finished shards to the tables for as long as the runs go on."""
        while True:
            await asyncio.to_thread(self._update)
            await asyncio.sleep(_REFRESH_S)

    def _update(self) -> None:
        """Update all tables. What cannot be read is said on the pages."""
        problem = ""
        for index in self._indexes:
            try:
                index.update(self._stop)
            except (UserError, OSError) as error:
                problem = str(error)
        self._problem = problem

    # The pages

    async def _list(self, request: web.Request) -> web.Response:
        return await _answer(self._list_page, dict(request.query))

    def _list_page(self, query: Mapping[str, str]) -> bytes:
        filters = Filters.parse(query)
        listing = list_questions(self._indexes, filters)
        types, hops = list_types(self._indexes)
        chosen = [each for each in self._indexes if filters.run in {"", each.name}]
        most = max((each.configurations for each in chosen), default=0)
        return self._render(
            "list.html.jinja",
            filters=filters,
            listing=listing,
            urls=[question_url(row["run"], row["configuration"], row["question_id"]) for row in listing.rows],
            columns=page_content.columns(filters),
            shares=page_content.outcome_shares(listing, filters),
            mixes=(most > 1 and filters.configuration is None) or len(chosen) > 1,
            runs=page_content.choices([each.name for each in self._indexes], filters.run),
            configurations=_configurations(chosen, most, filters.configuration),
            outcomes=page_content.choices(OUTCOMES, filters.outcome),
            stages=page_content.stage_choices(filters.stage),
            types=page_content.choices(types, filters.type),
            hops=page_content.choices(hops, filters.hops),
            costs=[page_content.Choice(name, text, name == filters.cost) for name, text in COSTS.items()],
            page_url=lambda number: filters.url(page=number),
        )

    async def _compare(self, request: web.Request) -> web.Response:
        return await _answer(self._compare_page, dict(request.query))

    def _compare_page(self, query: Mapping[str, str]) -> bytes:
        first, second = _two_sides(self._indexes)
        before = find_side(self._indexes, query.get("a") or first)
        after = find_side(self._indexes, query.get("b") or second)
        change: Change = next((each for each in CHANGES if each == query.get("show")), "differ")
        text, page = query.get("text", "").strip()[:1000], Filters.parse({"page": query.get("page", "")}).page
        found = compare(before, after, change, text, page)
        place = {"a": before.key, "b": after.key, "text": text}
        return self._render(
            "compare.html.jinja",
            found=found,
            before=page_content.sides(self._indexes, before.key),
            after=page_content.sides(self._indexes, after.key),
            names=[page_content.configuration_name(side.index, side.configuration) for side in (before, after)],
            changes=[
                (each, found.changes[each], page_content.compare_url(place, show=each), each == change)
                for each in CHANGES
            ],
            text=text,
            change=change,
            page=page,
            page_url=lambda number: page_content.compare_url(place, show=change, page=number),
            urls=[page_content.Address(before, row["question_id"], after).url() for row in found.rows],
        )

    async def _question(self, request: web.Request) -> web.Response:
        return await _answer(self._question_page, dict(request.match_info), dict(request.query))

    def _question_page(self, place: Mapping[str, str], query: Mapping[str, str]) -> bytes:
        side = find_side(self._indexes, f"{place['run']}/{place['configuration']}")
        beside = find_side(self._indexes, query["beside"]) if query.get("beside") else None
        beside = None if beside == side else beside
        address = page_content.Address(
            side,
            place["question"],
            beside,
            step=_step(query.get("step")),
            other_step=_step(query.get("other_step")),
            is_full=query.get("all") == "true",
        )
        panels = [
            page_content.build_panel(
                address, each, self._read(each.index, each.index.version, address.id, each.configuration)
            )
            for each in (side, *([beside] if beside else []))
        ]
        others = page_content.sides(self._indexes, beside.key if beside else "")
        return self._render(
            "question.html.jinja",
            panels=panels,
            address=address,
            sides=[each for each in others if each.value != side.key],
            alone=address.url(beside=None),
            most=MOST_CHARACTERS,
        )

    def _read_trace(self, index: RunIndex, _version: Hashable, id: str, configuration: int) -> QuestionTrace:
        return index.question(id, configuration)

    async def _state(self, _: web.Request) -> web.Response:
        """Say how many rows there are, so that an open page can show the new ones."""
        states = [index.state for index in self._indexes]
        growing = any(state.is_growing for state in states)
        rows = sum(state.rows for state in states)
        return web.json_response({"rows": rows, "progress": _progress(states), "growing": growing})

    def _render(self, name: str, **values: Any) -> bytes:
        states = [(index.name, index.state) for index in self._indexes]
        progress = _progress([state for _, state in states])
        return render(name, states=states, progress=progress, problem=self._problem, **values)


def _configurations(chosen: Sequence[RunIndex], most: int, number: int | None) -> Sequence[page_content.Choice]:
    if len(chosen) == 1:
        names = [page_content.configuration_name(chosen[0], each) for each in range(most)]
    else:
        names = [str(each) for each in range(most)]
    return [page_content.Choice(str(each), name, each == number) for each, name in enumerate(names)]


def _two_sides(indexes: Sequence[RunIndex]) -> tuple[str, str]:
    """Return the first two configurations, of two runs if there are two."""
    if len(indexes) > 1:
        return f"{indexes[0].name}/0", f"{indexes[1].name}/0"
    return f"{indexes[0].name}/0", f"{indexes[0].name}/{min(1, indexes[0].configurations - 1)}"


def _step(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


async def _answer(page: Callable[..., bytes], *arguments: object) -> web.Response:
    """Render a page in a thread. A mistake of the user, or a damaged file, is a page with one sentence."""
    try:
        body = await asyncio.to_thread(page, *arguments)
    except (UserError, StorageError, FileNotFoundError) as error:
        return await _error_page(str(error))
    return web.Response(body=body, content_type="text/html", charset="utf-8")


async def _error_page(message: str) -> web.Response:
    body = await asyncio.to_thread(render, "error.html.jinja", message=message)
    return web.Response(body=body, status=404, content_type="text/html", charset="utf-8")


async def _file(request: web.Request) -> web.Response:
    name = request.match_info["file"]
    if name not in _FILES:
        raise web.HTTPNotFound
    return web.Response(text=(HERE / name).read_text("utf-8"), content_type=_FILES[name], charset="utf-8")


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse names that are not this machine's, and add the headers that keep a page to itself."""
    name, _, _ = request.host.rpartition(":") if not request.host.endswith("]") else (request.host, "", "")
    response: web.StreamResponse
    if (name or request.host).lower() not in _NAMES:
        response = web.Response(
            status=421, text=f"this server answers only under the names {', '.join(sorted(_NAMES))}\n"
        )
    else:
        try:
            response = await handler(request)
        except web.HTTPNotFound:
            response = await _error_page(f"no page has the address {request.path}")
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
    response.headers.update(_HEADERS)
    return response


async def serve(indexes: Sequence[RunIndex], port: int, ready: Callable[[str], None]) -> None:
    """Serve the runs on the loopback interface until cancelled; call `ready` with the address.

    Raises UserError if the port is taken.
    """
    runner = web.AppRunner(Viewer(indexes).application(), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"port {port} cannot be used ({reason}): name another one, as in port=0") from None
        ready(f"http://{HOST}:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _progress(states: Sequence[State]) -> str:
    """Return a text that differs once an open page is out of date."""
    return ", ".join(f"{state.rows} {state.run}" for state in states)
