"""The lines that describe a finding, alike in `nodeguard check` and in `nodeguard describe node`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nodeguard.fleet_api.schema.node import FindingView
from nodeguard.fleet_api.text.lines import StyledLine
from nodeguard.fleet_api.text.phrases import FieldLine, first_names, target_text, title_line
from nodeguard.model.finding import Finding
from nodeguard.model.target import target_label


def description_lines(
    finding: Finding | FindingView,
    title: str,
    since: str,
    evidence: Iterable[str],
    omitted: int,
    field: FieldLine,
) -> Iterator[StyledLine]:
    """Yield the lines about what a finding is: its title, message, targets, component, start and evidence.

    since: its start, as text. omitted: number of pieces of evidence beyond these.
    """
    health = finding.health.value
    yield title_line(health, health, f"{title} - {target_text(finding.target, finding.hardware)}")
    if finding.message:
        yield field("message", finding.message, "")
    if finding.targets:
        yield field("targets", first_names(map(target_label, finding.targets)), "")
    if finding.component:
        yield field("component", finding.component, "")
    yield field("since", f"{since}{f'; {finding.note}' if finding.note else ''}", "")
    for text in evidence:
        yield field("evidence", text, "dim")
    if omitted > 0:
        yield field("", f"and {omitted} more", "dim")
