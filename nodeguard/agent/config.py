"""The agent's file of settings, which say what its options say; an option that is given wins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.catalog.located import read

# Without a NUL, which no name of a file can hold.
Text = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\0]*$")]
_Maybe = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*$")]


class Aggregator(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is reported to: every address, with the token in a file. ca_file: certificates to trust, where the
    system's are not to be.
    """

    addresses: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=4)]
    token_file: Text
    ca_file: _Maybe = ""


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings; each that is left out is its option's default."""

    listen: _Maybe = ""
    state: _Maybe = ""
    node: _Maybe = ""
    checks: tuple[Text, ...] = ()
    platform: _Maybe = ""
    instance_type: _Maybe = ""
    spread: _Maybe = ""
    socket: _Maybe = ""
    aggregator: Aggregator | None = None


def config(path: str) -> Config:
    """The settings of a file. Raises CatalogueError, which names file, line, field and remedy."""
    return read(Path(path), Config, hidden=("aggregator",))[1]
