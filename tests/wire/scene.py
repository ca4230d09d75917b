from __future__ import annotations

from typing import Any

from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, ReadFailure, Verdict
from nodeguard.model.instant import Instant
from nodeguard.wire.report import Inventory, ReportedComponent
from nodeguard.wire.report_builder import NodeFacts

NOW = Instant(1_700_000_000.0, 5_000.0, "boot-a")
FACTS = NodeFacts(
    node="node-7",
    agent="0.1.0",
    catalogue="c0ffee",
    topologies={"gpu-hot": ("rack",)},
    inventory=Inventory("570.1", "6.8.0", "dgx-h100", {"gpu/0000:3b:00": ReportedComponent("GPU-1", "H100")}),
)


def finding(check: str = "gpu-hot", **fields: Any) -> Finding:
    """Return a finding of ten minutes ago, with evidence of one minute ago. fields: replace the defaults."""
    values: dict[str, Any] = {
        "check": check, "target": "gpu/0000:3b:00", "component": "GPU-1", "health": Health.SUSPECT,
        "data_status": DataStatus.FRESH, "action": Action.RESET_GPU, "since": NOW.wall - 600.0,
        "message": "GPU 0000:3b:00 is hot", "evidence": (Evidence("nvml", "gpu.temp = 97", NOW.wall - 60.0, 3),),
        "family": "thermal", "title": "GPU hot", "remedy": "cool it", "runbook": "",
    }  # fmt: skip
    return Finding(**{**values, **fields})


def verdict(
    *findings: Finding, health: Health = Health.SUSPECT, unread: tuple[ReadFailure, ...] = ()
) -> Verdict:
    return Verdict(health, DataStatus.FRESH, findings, read_failures=unread)
