"""The agent's file of settings, which say what its options say; an option that is given wins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from nodeguard.config.yaml_document import YamlDocument, read_yaml

# Without a NUL, which no name of a file can hold.
Text = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\0]*$")]
_Maybe = Annotated[str, Meta(max_length=4096, pattern=r"^[^\0]*$")]


class AggregatorOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is reported to: every address, with the token in a file; or, where there is no Kubernetes, with a
    certificate and its key in files; with neither where every address is plain http. ca_file: certificates to
    trust, where the system's are not to be.
    """

    addresses: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=4)]
    token_file: _Maybe = ""
    ca_file: _Maybe = ""
    certificate_file: _Maybe = ""
    key_file: _Maybe = ""


class OptionsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings; each that is left out is its option's default."""

    listen: _Maybe = ""
    state: _Maybe = ""
    node: _Maybe = ""
    checks: tuple[Text, ...] = ()
    platform: _Maybe = ""
    instance_type: _Maybe = ""
    spread: _Maybe = ""
    socket: _Maybe = ""
    aggregator: AggregatorOptions | None = None


def read_options_file(path: str) -> OptionsFile:
    """The settings of a file. Raises CatalogueError, which names file, line, field and remedy."""
    located, found = read_yaml(Path(path), OptionsFile, hidden=("aggregator",))
    if (aggregator := found.aggregator) is not None:
        _shows(located, aggregator)
    return found


def _shows(located: YamlDocument, aggregator: AggregatorOptions) -> None:
    """Raises CatalogueError unless it is said how the node shows who it is, in one way."""
    certified = bool(aggregator.certificate_file), bool(aggregator.key_file)
    if any(certified) and not all(certified):
        missing = "key_file" if certified[0] else "certificate_file"
        raise located.error(("aggregator", missing), "is missing", "set it: a certificate goes with its key")
    # Plain http goes to this very machine alone, where an aggregator may ask nobody.
    local = all(one.startswith("http://") for one in aggregator.addresses)
    if not aggregator.token_file and not any(certified) and not local:
        remedy = "set it, or certificate_file and key_file where there is no Kubernetes"
        raise located.error(("aggregator", "token_file"), "is missing", remedy)
    if aggregator.token_file and any(certified):
        remedy = "keep it for Kubernetes, or certificate_file and key_file elsewhere"
        raise located.error(("aggregator", "token_file"), "stands beside a certificate", remedy)
