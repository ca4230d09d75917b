"""The file of an aggregator without Kubernetes: its advice, and what people decided."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct

from nodeguard.model.incident import Decision, Incident
from nodeguard.model.node import Taint

# Bytes of the file that are read; one of 7,500 marked nodes has a tenth.
_LIMIT = 64 * 1024 * 1024

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
            data = file.read(_LIMIT + 1)
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


def write(path: str, kept: Kept) -> None:
    """Write a file as a whole, in a directory that is made where only it is missing. Raises KeptError."""
    directory, new = os.path.dirname(path), f"{path}.new"
    try:
        if not os.path.isdir(directory):
            os.mkdir(directory, 0o700)
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(number)
        os.replace(new, path)
    except OSError as error:
        raise KeptError(
            f"{error.filename or new}: {error.strerror}: make room there, or let it be written"
        ) from None
