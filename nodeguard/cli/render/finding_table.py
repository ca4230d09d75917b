"""The findings of nodeguard check for -o wide and -o name: a row or a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodeguard.cli.render.resources import Column, ResourceTable, resource_lines
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet_api.text.wording import target_text
from nodeguard.judge.formatting import format_duration
from nodeguard.model.finding import Finding


def finding_names(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield check and target of each finding, as nodeguard clear takes them: `gpu-lost gpu/0000:3b:00`."""
    for finding in findings:
        for target in finding.targets or (finding.target,):
            yield f"{finding.check} {target}"


def finding_lines(findings: Sequence[Finding], now: float, width: int | None) -> list[StyledLine]:
    """Return a table of findings. now: seconds since the epoch. width: of the terminal."""
    columns = (
        Column("HEALTH", lambda finding: StyledText(finding.health.value, finding.health.value)),
        Column("DEVICE", lambda finding: target_text(finding.target, finding.hardware)),
        Column("CHECK", lambda finding: finding.check),
        Column("ACTION", lambda finding: finding.action.value),
        Column("AGE", lambda finding: format_duration(max(0.0, round(now - finding.since)))),
        Column("DATA", lambda finding: finding.data_status.value),
        Column("MESSAGE", lambda finding: finding.message),
    )
    table = ResourceTable("finding", "findings", lambda finding: finding.check, columns)
    return resource_lines(table, list(findings), width, wide=True)
