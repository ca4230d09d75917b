"""Reports of a fleet for tests of the history."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodeguard.fleet.state.history_events import ReportReceived
from nodeguard.model.finding import DataStatus, Health
from nodeguard.wire.digest import digest
from nodeguard.wire.report import VERSION, Inventory, Report, ReportedComponent, ReportedFinding
from tests.fleet.scene import finding, in_order

START = 1_700_000_000.0
DAY = 86_400.0


def report(number: int = 1, sequence: int = 1, *findings: ReportedFinding, **fields: Any) -> Report:
    """Return the report of a node. fields: replace the defaults."""
    values: dict[str, Any] = {
        "version": VERSION, "node": f"node-{number}", "boot_id": "b1", "sequence": sequence,
        "health": Health.FATAL if findings else Health.OK, "data_status": DataStatus.FRESH, "agent": "0.1.0",
        "findings": findings, "passing": () if findings else (in_order(),),
        "inventory": Inventory("570.1", "6.8", "", {"gpu/0000:3b:00": ReportedComponent(f"GPU-{number}")}),
    }  # fmt: skip
    without_digest = Report(**{**values, **fields})
    return replace(without_digest, digest=digest(without_digest))


def received(
    after: float, number: int = 1, sequence: int = 1, *findings: ReportedFinding, **fields: Any
) -> ReportReceived:
    """Return the receipt of a healthy node's report, some seconds after START."""
    return ReportReceived(START + after, f"uid-{number}", report(number, sequence, *findings, **fields))


def unhealthy(after: float, number: int = 1, sequence: int = 2) -> ReportReceived:
    """Return the receipt of an unhealthy node's report."""
    return received(after, number, sequence, finding())


def rows(path: Path, query: str) -> list[Any]:
    """Return the rows of a query; of a query with one column, its values. None before the file has its tables."""
    connection = sqlite3.connect(path)
    try:
        result = connection.execute(query).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        result = []
    finally:
        connection.close()
    return [row[0] if len(row) == 1 else row for row in result]
