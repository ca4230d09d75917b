"""The section about a finding, for `nodeguard check`, `nodeguard describe node` and the status page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodeguard.fleet_api.schema.node import FindingView
from nodeguard.fleet_api.text.wording import first_names, target_text
from nodeguard.fleet_api.view import Field, Heading, Section, badge_heading, commands
from nodeguard.model.finding import Finding
from nodeguard.model.target import target_label


class FindingTexts(NamedTuple):
    """What differs between the finding of a verdict and that of a report. An empty text is left out.

    since: its start. evidence: texts of the first pieces; omitted: number of the others. processes: that met
    the fault. action: what to do, with its commands. see: what shows more, after the state of the mark.
    """

    title: str
    since: str
    evidence: Iterable[str]
    omitted: int
    marks: tuple[Field, ...] = ()
    processes: str = ""
    action: str = ""
    commands: tuple[str, ...] = ()
    see: tuple[Field, ...] = ()


def finding_section(finding: Finding | FindingView, texts: FindingTexts) -> Section:
    """Return the section about a finding."""
    return Section(finding_heading(finding, texts.title), tuple(finding_fields(finding, texts)))


def finding_heading(finding: Finding | FindingView, title: str) -> Heading:
    """Return the heading of a finding: its health, its title and its part."""
    health = finding.health.value
    return badge_heading(health, health, f"{title} - {target_text(finding.target, finding.hardware)}")


def finding_fields(finding: Finding | FindingView, texts: FindingTexts) -> Iterator[Field]:
    """Yield the fields of a finding: what failed, since when, the evidence, the marks, and what to do."""
    if finding.message:
        yield Field("message", finding.message)
    if finding.targets:
        yield Field("targets", first_names(map(target_label, finding.targets)))
    if finding.component:
        yield Field("component", finding.component)
    yield Field("since", f"{texts.since}{f'; {finding.note}' if finding.note else ''}")
    for text in texts.evidence:
        yield Field("evidence", text, "dim")
    if texts.omitted > 0:
        yield Field("", f"and {texts.omitted} more", "dim")
    if texts.processes:
        yield Field("affected", texts.processes)
    yield from texts.marks
    if texts.action:
        yield Field("action", texts.action)
        yield from commands(texts.commands)
    yield from texts.see
