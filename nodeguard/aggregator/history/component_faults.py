"""What a history tells of parts: which there were, and how often they failed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing

import msgspec

from nodeguard.aggregator.history.file import HistoryFileError, history_path, open_for_reading
from nodeguard.fleet.diagnosis.component_faults import has_component_id, is_component_fault, is_isolated
from nodeguard.fleet.diagnosis.repeat_offenders import FaultHistory
from nodeguard.model.incident import Incident
from nodeguard.wire.report import Inventory

# What was in each node, from when to when. What one inventory is made of is kept once.
_SEEN = """
SELECT min(report.at), max(report.at), report.node, shared.text
FROM report JOIN shared ON shared.id = report.inventory GROUP BY report.uid, report.inventory
"""
_INCIDENTS = "SELECT text FROM told WHERE kind = 'incident' ORDER BY id"

# Seconds in which a part begins to fail once, as far as other parts of its node are concerned.
_HOUR = 3_600.0

_INCIDENT = msgspec.json.Decoder(Incident)
_INVENTORY = msgspec.json.Decoder(Inventory)


async def load_component_faults(path: str, known: FaultHistory, tell: Callable[[str], object]) -> None:
    """Have parts known as a history has them, or one in a directory. One that cannot be read costs no more
    than that: it is said why.
    """
    file = history_path(path)
    if not os.path.exists(file):
        return
    try:
        before = await asyncio.to_thread(read_component_faults, file)
    except (HistoryFileError, sqlite3.Error, msgspec.DecodeError, OSError) as error:
        tell(f"{file}: what it tells of parts is not known ({error}): lemons are counted from now on")
        return
    known.merge(before)


def read_component_faults(file: str) -> FaultHistory:
    """What a history tells of parts. Raises FileError, OSError, sqlite3.Error and msgspec.DecodeError."""
    found = FaultHistory()
    with closing(open_for_reading(file)) as connection:
        for one in _faults(connection):
            found.record_fault(one.component, one.node, one.target, one.cause, one.first_seen)
        for first, last, node, text in connection.execute(_SEEN):
            for slot, occupant in _INVENTORY.decode(text).components.items():
                if occupant.id and has_component_id(slot):
                    found.record_component(occupant.id, first)
                    found.record_component(occupant.id, last, node, slot)
    return found


def _faults(connection: sqlite3.Connection) -> list[Incident]:
    """Incidents of parts that were told of for themselves throughout: what a domain is to blame for, or a
    check that is held, is no fault of a part, nor is what befalls many parts of a node.
    """
    found: dict[tuple[str, float], Incident] = {}
    explained: set[tuple[str, float]] = set()
    for (text,) in connection.execute(_INCIDENTS):
        one = _INCIDENT.decode(text)
        key = one.name, one.first_seen
        if one.parent:
            explained.add(key)
        elif one.node and is_component_fault(one, one.target):
            found[key] = one
    began: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for one in found.values():
        began[one.uid][one.component, int(one.first_seen // _HOUR)] = one.first_seen
    return [
        one
        for key, one in found.items()
        if key not in explained and is_isolated(one.first_seen, began[one.uid].values())
    ]
