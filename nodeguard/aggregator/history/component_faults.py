"""Faults of components in a history: the start values of the repeat-offender statistics."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import defaultdict
from contextlib import closing

from nodeguard.aggregator.history.file import DAMAGED_ROW, HistoryFileError, history_path, open_for_reading
from nodeguard.fleet.components.component_faults import has_component_id, is_component_fault, is_isolated
from nodeguard.fleet.components.repeat_offenders import FaultHistory
from nodeguard.model.incident import Incident
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.wire.report import Inventory

logger = logging.getLogger(__name__)

# The components of each node, with first and last time. Equal inventories are stored once.
_SEEN = """
SELECT min(report.at), max(report.at), report.node, shared.text
FROM report JOIN shared ON shared.id = report.inventory GROUP BY report.uid, report.inventory
"""
_INCIDENTS = "SELECT text FROM note WHERE kind = 'incident' ORDER BY id"

# Seconds in which repeated faults of a component count once, compared with other components of its node.
_HOUR = 3_600.0

_INCIDENT = JsonDecoder(Incident)
_INVENTORY = JsonDecoder(Inventory)


async def load_component_faults(path: str, faults: FaultHistory) -> None:
    """Add the faults in a history, a file or a directory. If it cannot be read, the reason is logged."""
    file = history_path(path)
    if not os.path.exists(file):
        return
    try:
        recorded = await asyncio.to_thread(read_component_faults, file)
    except (HistoryFileError, sqlite3.Error, OSError, *DAMAGED_ROW) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        logger.warning(
            "cannot read the faults of components, repeat offenders are counted from now",
            extra={"file": file, "error": reason},
        )
        return
    faults.merge(recorded)


def read_component_faults(file: str) -> FaultHistory:
    """Return the faults of components. Raises HistoryFileError, OSError, sqlite3.Error, DAMAGED_ROW."""
    faults = FaultHistory()
    with closing(open_for_reading(file)) as connection:
        for incident in _faults(connection):
            faults.record_fault(
                incident.component, incident.node, incident.target, incident.cause, incident.first_seen
            )
        for first, last, node, text in connection.execute(_SEEN):
            for target, occupant in _INVENTORY.decode(text).components.items():
                if occupant.id and has_component_id(target):
                    faults.record_component(occupant.id, first)
                    faults.record_component(occupant.id, last, node, target)
    return faults


def _faults(connection: sqlite3.Connection) -> list[Incident]:
    """Return the incidents that are faults of one component: not explained by a degraded domain or a
    suppressed check, and without simultaneous faults of many components of the node.
    """
    incidents: dict[tuple[str, float], Incident] = {}
    explained: set[tuple[str, float]] = set()
    for (text,) in connection.execute(_INCIDENTS):
        incident = _INCIDENT.decode(text)
        key = incident.name, incident.first_seen
        if incident.parent:
            explained.add(key)
        elif incident.node and not incident.injected and is_component_fault(incident, incident.target):
            incidents[key] = incident
    began: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for incident in incidents.values():
        began[incident.uid][incident.component, int(incident.first_seen // _HOUR)] = incident.first_seen
    return [
        incident
        for key, incident in incidents.items()
        if key not in explained and is_isolated(incident.first_seen, began[incident.uid].values())
    ]
