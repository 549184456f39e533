"""Data at a URL: on the Hugging Face Hub (`hf://`), on a web server, or in any other store that fsspec supports.

A file is downloaded once, into the cache of `huggingface_hub` or of fsspec. A new version of it is downloaded anew. The
stores' own clients take credentials and endpoints from the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import fsspec
from pydantic import PlainValidator
from upath import UPath

from pipeline.errors import UserError
from pipeline.net.urls import local_name, remote_scheme

AnyPath: TypeAlias = Path | UPath
"""A `Path` is on this machine; a `UPath` is at a URL."""

_VERSIONS = ("ETag", "etag", "Content-MD5", "content_md5", "md5Hash", "Digest", "blob_id")
_TIMES = ("Last-Modified", "LastModified", "last_modified", "updated", "mtime", "created")
"""What stores call the version of a file, and the time of its last change."""


def parse_path(name: str | AnyPath) -> AnyPath:
    """Parse a path or a URL; nothing is read yet.

    Raises UserError for credentials in it, a store inside another one, and a client that is missing or has no access.
    """
    if isinstance(name, AnyPath):
        return name
    scheme = remote_scheme(str(name))
    if scheme is None:
        return Path(local_name(str(name)))
    try:
        path = UPath(name)
        assert path.fs  # imports the client
    except Exception as error:  # noqa: BLE001 - some clients connect here, and each has its own exceptions
        raise UserError(f"{name} cannot be read: {str(error).partition(chr(10))[0]}") from None
    return _downloaded_snapshot(path) if scheme == "hf" else path


DataPath = Annotated[AnyPath, PlainValidator(parse_path)]
"""A field that holds a path or a URL."""


def is_file(path: AnyPath) -> bool:
    """Whether this is a file, and not a folder or nothing. Raises UserError for a store that does not answer."""
    if isinstance(path, Path):
        return path.is_file()
    with _reaching(path):
        try:
            info = path.fs.info(path.path)
        except FileNotFoundError as error:
            if isinstance(error.__cause__, OSError):  # no repository, or no answer
                raise
            return False
    return bool(info["type"] == "file") and not str(info.get("url", "")).endswith("/")  # a web server's folder


def glob(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """Return the files in a folder that match a pattern, sorted. Raises UserError for a store that does not answer."""
    if isinstance(folder, Path):
        return sorted(file for file in folder.glob(pattern) if file.is_file())
    with _reaching(folder):
        try:
            return sorted((file for file in folder.glob(pattern) if is_file(file)), key=str)
        except FileNotFoundError:
            return []


def local_copy(file: AnyPath) -> Path:
    """Return the file itself, or the copy of its current version in the cache. Raises UserError."""
    if isinstance(file, Path):
        return file
    with _reaching(file):
        if repository := _repository(file):
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(filename=repository.pop("path"), **repository))
        digest = hashlib.blake2b(f"{file}\n{_version_of_file(file.fs.info(file.path))}".encode(), digest_size=16)
        folder = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "fsspec" / digest.hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:  # so that only one process downloads the file
            fcntl.flock(lock, fcntl.LOCK_EX)
            options: dict[str, Any] = {"cache_storage": str(folder), "same_names": True, "expiry_time": False}
            cache = fsspec.filesystem("filecache", fs=file.fs, skip_instance_cache=True, **options)
            with cache.open(file.path) as copy:
                return Path(copy.name)


def versions(section: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the version of each URL in a section: a commit of the Hub, an ETag, or a digest.

    It is None for a URL whose store does not tell.
    """
    paths = {text: parse_path(text) for text in _texts(section) if "://" in text and remote_scheme(text)}
    return {text if isinstance(path, Path) else str(path): _version(path) for text, path in paths.items()}


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value of a configuration."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _version(path: AnyPath) -> str | None:
    if isinstance(path, Path):  # a snapshot of the Hub, whose folder has the name of its commit
        return next((each.name for each in (path, *path.parents) if each.parent.name == "snapshots"), None)
    try:
        if repository := _repository(path):
            from huggingface_hub import HfApi

            api = HfApi(endpoint=repository["endpoint"], token=repository["token"])
            info = api.repo_info(**{key: repository[key] for key in ("repo_id", "repo_type", "revision")})
            return str(info.sha)
        if is_file(path):
            return _version_of_file(path.fs.info(path.path))
        listing = sorted((name, _version_of_file(info)) for name, info in path.fs.find(path.path, detail=True).items())
        return hashlib.blake2b(repr(listing).encode(), digest_size=16).hexdigest() if listing else None
    except Exception:  # noqa: BLE001 - every store's client has its own exceptions; reading the data reports them
        return None


def _version_of_file(info: Mapping[str, Any]) -> str:
    """Return what changes with the contents. If the store tells nothing, each answer differs from all others."""
    told = [str(info[name]) for name in (*_VERSIONS, *_TIMES) if info.get(name)]
    return told[0].strip('"') if told else f"unknown at {time.time()}"


def _repository(path: UPath) -> dict[str, Any] | None:
    """Return the repository of the Hub and the path in it, as arguments of its client; None for another store."""
    if path.protocol != "hf":
        return None
    found = path.fs.resolve_path(path.path)
    if not hasattr(found, "repo_id"):  # a bucket
        return None
    own = {name: getattr(found, name) for name in ("repo_id", "repo_type", "revision")}
    return {**own, "path": found.path_in_repo, "endpoint": path.fs.endpoint, "token": path.fs.token}


def _downloaded_snapshot(path: UPath) -> AnyPath:
    """Return the path in the Hub's cache if the user has switched the network off (HF_HUB_OFFLINE=1)."""
    from huggingface_hub import constants, snapshot_download

    kind, *rest = path.path.split("/", 3)
    if not constants.HF_HUB_OFFLINE or kind != "datasets" or len(rest) < 2:
        return path
    name, _, revision = rest[1].partition("@")
    try:
        folder = snapshot_download(f"{rest[0]}/{name}", repo_type="dataset", revision=revision or None)
    except OSError:
        raise UserError(f"{path} is not in the cache of the Hub, and HF_HUB_OFFLINE forbids to download it") from None
    return Path(folder, *rest[2:])


@contextmanager
def _reaching(path: UPath) -> Iterator[None]:
    """Turn any exception of a store's client into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - every store's client has its own exceptions
        if refusal := _refusal_of_hub(path, error):
            raise UserError(refusal) from None
        cause = error.__cause__ or error
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        raise UserError(f"{path} cannot be reached: {reason}") from None


def _refusal_of_hub(path: UPath, error: Exception) -> str | None:
    """Return the sentence about a repository or revision that the Hub does not have; None for any other error."""
    if path.protocol != "hf":
        return None
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    cause = error.__cause__ or error
    if isinstance(cause, RevisionNotFoundError):
        return f"{path} names a revision that its repository does not have"
    if isinstance(cause, RepositoryNotFoundError):
        return (
            f"{path}: the Hub has no such repository, or it is private: for a private one, log in with "
            "`hf auth login` or set HF_TOKEN"
        )
    return None
