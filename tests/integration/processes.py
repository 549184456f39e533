"""The processes that a command started, found by a mark in their environment, and what they listen on."""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterator
from pathlib import Path

MARK = "KGQA_TEST_MARK"


def marked(mark: str) -> Iterator[Path]:
    """The folders below `/proc` of running processes with the mark in their environment, and of those they started.

    A process that gives itself another title, as Ray's do, may write it over its environment.
    """
    parents, found = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[folder] = Path("/proc", re.findall(r"PPid:\s*(\d+)", (folder / "status").read_text())[0])
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.add(folder)
        except OSError:  # it has just gone
            continue
    while started := {folder for folder, parent in parents.items() if parent in found} - found:
        found |= started
    yield from found


def command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # it has just gone
        return ""


def question_workers(mark: str) -> list[int]:
    """The process ids of a run's workers."""
    return _named(mark, r"ray::QuestionWorker")


def raylets(mark: str) -> list[int]:
    """The process ids of the Ray nodes."""
    return _named(mark, r"\S*/raylet ")


def heads(mark: str) -> list[int]:
    """The process ids of the processes that hold the state of Ray clusters."""
    return _named(mark, r"\S*/gcs_server ")


def model_servers(mark: str) -> list[int]:
    """The process ids of the vLLM servers."""
    return _named(mark, r"\S*python\S* -m vllm\.entrypoints\.openai\.api_server")


def engines(mark: str) -> list[int]:
    """The process ids of the engines of the vLLM servers."""
    return _named(mark, r"VLLM::EngineCore")


def _named(mark: str, name: str) -> list[int]:
    """The marked processes whose command begins so. Ray and vLLM give their processes names."""
    return [int(process.name) for process in marked(mark) if re.match(name, command(process))]


def listening(mark: str) -> dict[str, set[tuple[str, int]]]:
    """The addresses and ports that each marked process accepts connections on, by its command."""
    addresses = dict(_listening_sockets())
    found: dict[str, set[tuple[str, int]]] = {}
    for process in marked(mark):
        try:
            sockets = {str(link.readlink()) for link in (process / "fd").iterdir()}
            found.setdefault(command(process), set()).update(addresses[socket] for socket in sockets & addresses.keys())
        except OSError:
            continue
    return {name: on for name, on in found.items() if on}


def _listening_sockets() -> Iterator[tuple[str, tuple[str, int]]]:
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                address, _, port = local.partition(":")
                yield f"socket:[{inode}]", (_address(address), int(port, 16))


def _address(words: str) -> str:
    """From the kernel's words of four bytes, each in the order of this machine."""
    packed = b"".join(struct.pack("=I", int(words[start : start + 8], 16)) for start in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_loopback(on: tuple[str, int]) -> bool:
    """Whether only this machine reaches an address."""
    return ipaddress.ip_address(on[0]).is_loopback
