"""Incidents of domains, jobs and checks that explain faults of a node, by the subject of its own incident."""

from __future__ import annotations

from collections.abc import Mapping, Set

from msgspec import Struct

# The subject of an incident: its target, and whether its faults are injected. Real faults and injected ones
# have an incident each, so that neither hides the other.
Subject = tuple[str, bool]


class ParentIncidents(Struct, frozen=True):
    """The incidents that explain findings of a node, by target. parents: their names. early: subjects that
    an incident may explain soon, and until when, in seconds since the epoch; they are not reported before
    that is clear. An injected fault waits as long as a real one, but no incident explains it. suppressed:
    checks with real faults that are suppressed on the node.
    """

    parents: Mapping[str, str] = {}
    early: Mapping[Subject, float] = {}
    suppressed: Set[str] = frozenset()
