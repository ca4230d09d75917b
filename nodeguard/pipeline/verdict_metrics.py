"""A verdict as Prometheus metrics, which the agent serves and `nodeguard check` prints."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.finding import DataStatus, Finding, Health, ReadFailure
from nodeguard.wire.exposition import gauge, states


def verdict_metrics(
    health: Health | None, data_status: DataStatus, findings: Iterable[Finding], unread: Iterable[ReadFailure]
) -> str:
    """Return the metrics of a verdict. health: None if nothing could be evaluated."""
    targets: dict[str, float] = {}
    for missing in unread:
        targets[missing.source] = targets.get(missing.source, 0) + len(missing.targets)
    return "".join(
        (
            states(
                "nodeguard_node_health",
                "Health of the node: 1 for its state, 0 for all if nothing could be evaluated.",
                "health",
                Health,
                health,
            ),
            states(
                "nodeguard_node_data_status",
                "Status of the data about the node: 1 for its state.",
                "data_status",
                DataStatus,
                data_status,
            ),
            gauge(
                "nodeguard_finding",
                "Finding that is not ok.",
                [(_labels(finding), 1) for finding in findings],
            ),
            gauge(
                "nodeguard_unreadable_targets",
                "Targets of which something could not be read.",
                [({"source": source}, count) for source, count in targets.items()],
            ),
        )
    )


def _labels(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "target": finding.target,
        "health": finding.health.value,
        "action": finding.action.value,
        "data_status": finding.data_status.value,
    }
