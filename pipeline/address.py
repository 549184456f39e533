"""Addresses of servers as users give them: they are written to `run.yaml`, so no credentials may be in them."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from pipeline.errors import UserError

_CREDENTIAL = re.compile(r"auth|credential|key|pass|secret|sig|token", re.IGNORECASE)


def check_address(url: str, *, key: str, example: str, instead: str) -> None:
    """Raise UserError unless `url` is an http address without credentials; the message never shows them.

    `key` is where it was given, and `instead` the environment variables for the credentials, in words.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UserError(f"{key}: {url.rpartition('@')[2]!r} is no address; write it as {example}")
    if parts.username or parts.password or any(_CREDENTIAL.search(name) for name, _ in parse_qsl(parts.query)):
        raise UserError(
            f"{key}: take the credentials out of the address of {parts.hostname}, which is written to run.yaml; "
            f"put them into {instead} of the environment"
        )
