"""Reads URLs given by users. They are written to `run.yaml`, so they must not contain credentials."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

from pipeline.errors import UserError
from pipeline.extras import require

_OF_THIS_MACHINE = ("file", "local")
_CREDENTIAL = re.compile(r"auth|credential|key|pass|secret|sig|token", re.IGNORECASE)


def check_urls(urls: Sequence[str], *, key: str, example: str, instead: str) -> None:
    """Raise UserError unless the URLs are different HTTP URLs without credentials. The message shows no credentials.

    `key` is the configuration key of the URLs. `instead` names the environment variables for the credentials.
    """
    seen: set[str] = set()
    for url in urls:
        _check_url(url, key=key, example=example, instead=instead)
        if url.rstrip("/") in seen:  # it would get twice its share of the requests
            raise UserError(f"{key} names {url} more than once: name each server once")
        seen.add(url.rstrip("/"))


def _check_url(url: str, *, key: str, example: str, instead: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UserError(f"{key}: {url.rpartition('@')[2]!r} is not a URL; write it as {example}")
    if has_credentials(url):
        raise UserError(
            f"{key}: remove the credentials from the URL of {parts.hostname}, which is written to run.yaml; "
            f"put them into {instead} of the environment"
        )


def remote_scheme(name: str) -> str | None:
    """Return the scheme of the URL of a file elsewhere; None for a path or URL of this machine (`local_name`).

    Raises UserError for credentials in it, for a store whose client is not installed, and for a URL that leads from one
    store to another (`zip::http://…`): credentials in its inner parts would be stored, and it reads other files than
    those that it seems to name.
    """
    scheme, separator, _ = name.partition("://")
    if separator and "::" in name:
        raise UserError(f"{scheme}://… names a store inside another one (::): copy the files out of it, and name them")
    if not separator or scheme in _OF_THIS_MACHINE:
        return None
    if has_credentials(name):
        raise UserError(f"{scheme}://… holds credentials, which run.yaml would store: set them in the environment")
    if scheme in ("hf", "s3"):
        require(scheme, name)
    return scheme


def local_name(name: str) -> str:
    """Return a path of this machine without `file://` or `local://`."""
    scheme, separator, rest = name.partition("://")
    return rest if separator and scheme in _OF_THIS_MACHINE else name


def has_credentials(url: str) -> bool:
    """Whether a URL holds a user, a password or a parameter with the name of a secret."""
    parts = urlsplit(url)
    secrets = (name for name, _ in parse_qsl(parts.query) if _CREDENTIAL.search(name))
    return "@" in parts.netloc or any(secrets)
