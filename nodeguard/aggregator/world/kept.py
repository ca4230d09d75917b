"""The file of an aggregator without Kubernetes: its advice, and what people decided."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.incident import Decision, Incident
from nodeguard.model.node import Taint

# Bytes of the file, as it is read and as it is written; one of 7,500 marked nodes has a tenth.
LIMIT = 64 * 1024 * 1024

# Members that are encoded at a time: the event loop waits while the thread that writes encodes.
_AT_ONCE = 200

_VERSION = 1


class Advised(Struct, frozen=True, omit_defaults=True):
    """What is advised of one node: the taints that it would carry, and the record of why."""

    taints: tuple[Taint, ...] = ()
    state: str = ""
    cordoned: bool = False


class Kept(Struct, frozen=True, omit_defaults=True):
    """What the file holds. decisions, incidents: by name. nodes: by name, those of which anything is advised.
    gpus: of every node, by name.
    """

    version: int = _VERSION
    pause: str = ""
    decisions: dict[str, Decision] = {}
    incidents: dict[str, Incident] = {}
    nodes: dict[str, Advised] = {}
    gpus: dict[str, int] = {}


class KeptError(Exception):
    """The file cannot be used; names it, says why and how to remedy."""


def in_directory(directory: str) -> str:
    """Path of the file in a directory."""
    return str(Path(directory) / "decisions.json")


def read(path: str) -> Kept:
    """What a file holds; nothing where there is none. Raises KeptError."""
    try:
        with open(path, "rb") as file:
            data = file.read(LIMIT + 1)
        if len(data) > LIMIT:
            raise KeptError(f"{path} has more than {LIMIT} bytes: put back a copy, or move it away")
        kept = msgspec.json.decode(data, type=Kept)
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise KeptError(f"{path}: {error.strerror}: let it be read, or name another --state") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise KeptError(
            f"{path} is damaged, and people's decisions with it: put back a copy, or move it away and "
            "decide anew"
        ) from None
    if kept.version != _VERSION:
        raise KeptError(f"{path} was written by a newer version ({kept.version}): upgrade, or move it away")
    return kept


def write(path: str, kept: Kept, limit: int = LIMIT) -> int:
    """Write a file as a whole, in a directory that is made where only it is missing. Raises KeptError.

    limit: bytes of the file. Returns how many incidents are left out because of it.
    """
    directory, new = os.path.dirname(path), f"{path}.new"
    pieces, left_out = encoded(kept, limit)
    try:
        if not os.path.isdir(directory):
            os.mkdir(directory, 0o700)
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(number)
        os.replace(new, path)
    except OSError as error:
        raise KeptError(
            f"{error.filename or new}: {error.strerror}: make room there, or let it be written"
        ) from None
    return left_out


def encoded(kept: Kept, limit: int = LIMIT) -> tuple[list[bytes], int]:
    """Return a file's content in pieces, and how many incidents are left out so that it has at most so many
    bytes: first those that were resolved longest ago, then those that began first. Raises KeptError where it
    has more without any.
    """
    pieces = [msgspec.json.encode(replace(kept, decisions={}, incidents={}, nodes={}, gpus={}))[:-1]]
    for name, things in (("decisions", kept.decisions), ("nodes", kept.nodes), ("gpus", kept.gpus)):
        pieces += _member(name, [msgspec.json.encode(part)[1:-1] for part in _parts(things)], pieces)
    size = sum(map(len, pieces)) + len(_CLOSING)
    if size > limit:
        raise KeptError(f"what is to be remembered has {size} bytes, more than {limit}: please report it")
    ordered = sorted(
        kept.incidents.items(), key=lambda item: (item[1].is_open, item[1].resolved, item[1].since)
    )
    incidents, left_out = list[bytes](), len(ordered)
    for part in _parts(dict(reversed(ordered))):
        piece = msgspec.json.encode(part)[1:-1]
        size += len(piece) + 1
        if size > limit:
            break
        incidents.append(piece)
        left_out -= len(part)
    return [*pieces, *_member("incidents", incidents, pieces), b"}"], left_out


# Bytes that the last member and the end take beside what is in it.
_CLOSING = b',"incidents":{}}'


def _member(name: str, parts: list[bytes], before: list[bytes]) -> list[bytes]:
    """Return a member of a JSON object, nothing where it is empty. before: the object up to this member."""
    if not parts:
        return []
    comma = b"" if before == [b"{"] else b","
    return [comma + f'"{name}":{{'.encode(), b",".join(parts), b"}"]


def _parts(things: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a mapping in parts of some members each."""
    items = iter(things.items())
    while part := dict(islice(items, _AT_ONCE)):
        yield part
