"""Injected faults: synthetic findings that an operator adds on a node to rehearse alerts and marks."""

from __future__ import annotations

from msgspec import Struct

from nodeguard.model.finding import Finding

# Maximum duration of an injected fault in seconds, and maximum number of a node.
MAX_SECONDS = 86_400.0
MAX_INJECTIONS = 8

# The source in the evidence of an injected fault, and the start of its message: every view shows the message.
SOURCE = "inject"
PREFIX = "injected: "


class Injection(Struct, frozen=True):
    """An injected fault of this node.

    id: for `--clear`. finding: as the check would report it. by: the operator. until: its end, in seconds
    since the epoch.
    """

    id: str
    finding: Finding
    by: str
    until: float
