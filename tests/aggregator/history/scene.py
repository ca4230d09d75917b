"""What a fleet tells, and a store and a writer that keep it."""

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


def report(number: int = 1, sequence: int = 1, *findings: ReportedFinding, **more: Any) -> Report:
    """What an agent says: all is well, or what is found."""
    values: dict[str, Any] = {
        "version": VERSION, "node": f"node-{number}", "boot_id": "b1", "sequence": sequence,
        "health": Health.FATAL if findings else Health.OK, "data_status": DataStatus.FRESH, "agent": "0.1.0",
        "findings": findings, "passing": () if findings else (in_order(),),
        "inventory": Inventory("570.1", "6.8", "", {"gpu/0000:3b:00": ReportedComponent(f"GPU-{number}")}),
    }  # fmt: skip
    made = Report(**{**values, **more})
    return replace(made, digest=digest(made))


def said(
    after: float, number: int = 1, sequence: int = 1, *findings: ReportedFinding, **more: Any
) -> ReportReceived:
    return ReportReceived(START + after, f"uid-{number}", report(number, sequence, *findings, **more))


def sick(after: float, number: int = 1, sequence: int = 2) -> ReportReceived:
    return said(after, number, sequence, finding())


def rows(path: Path, query: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(query).fetchall()
    connection.close()
    return [row[0] if len(row) == 1 else row for row in found]
