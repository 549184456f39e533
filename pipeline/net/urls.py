"""Checks URLs of servers given by users: they are written to `run.yaml`, so they must not contain credentials."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from pipeline.errors import UserError

_CREDENTIAL = re.compile(r"auth|credential|key|pass|secret|sig|token", re.IGNORECASE)


def check_url(url: str, *, key: str, example: str, instead: str) -> None:
    """Raise UserError unless `url` is an HTTP URL without credentials. The message never shows credentials.

    `key` is the configuration key of the URL. `instead` names the environment variables for the credentials.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UserError(f"{key}: {url.rpartition('@')[2]!r} is not a URL; write it as {example}")
    if has_credentials(url):
        raise UserError(
            f"{key}: remove the credentials from the URL of {parts.hostname}, which is written to run.yaml; "
            f"put them into {instead} of the environment"
        )


def split_store(name: str) -> tuple[str, str]:
    """Return the scheme and the rest of the URL of a store. A path on this machine has no scheme.

    Raises UserError for a URL that leads from one store to another (`zip::http://…`): credentials in its inner parts
    would be stored, and it reads other files than those that it seems to name.
    """
    scheme, separator, rest = name.partition("://")
    if not separator:
        return "", name
    if "::" in name:
        raise UserError(f"{scheme}://… names a store inside another one (::): copy the files out of it, and name them")
    return ("", rest) if scheme in ("file", "local") else (scheme, rest)


def has_credentials(url: str) -> bool:
    """Whether a URL holds a user, a password or a parameter with the name of a secret."""
    parts = urlsplit(url)
    secrets = (name for name, _ in parse_qsl(parts.query) if _CREDENTIAL.search(name))
    return "@" in parts.netloc or any(secrets)
