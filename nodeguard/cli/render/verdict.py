"""The view of nodeguard check: the verdict, the findings, and the unread data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from nodeguard.cli.render.conclusion import (
    ApplicationError,
    application_errors,
    conclusion,
    error_text,
    is_healthy,
    no_commands,
    process_text,
)
from nodeguard.cli.render.terminal import format_time
from nodeguard.cli.scope import NOUNS
from nodeguard.fleet_api.text.finding import FindingTexts, finding_section
from nodeguard.fleet_api.text.phrases import count_noun, first_names, format_age, target_text
from nodeguard.fleet_api.view import Field, Heading, Note, Section, View, badge_heading
from nodeguard.model.finding import (
    CounterTotal,
    DataStatus,
    Evidence,
    Finding,
    PassedFamily,
    ReadFailure,
    Verdict,
)
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE, target_label

_SHOWN = 4
_EVIDENCE_SHOWN = 3


class VerdictText(NamedTuple):
    """What the view of a verdict needs.

    meanings: of coded readings in the evidence. inventory: of the machine, empty for none. reason: why no
    check could be evaluated, where it is known. checks_option: the --checks options of the command line.
    selection: see conclusion. commands: of a finding's action.
    """

    hostname: str
    verdict: Verdict
    instant: Instant
    meanings: Mapping[str, str]
    inventory: str = ""
    reason: str = ""
    checks_option: str = ""
    selection: str = ""
    commands: Callable[[Finding], tuple[str, ...]] = no_commands


def verdict_view(text: VerdictText, *, quiet: bool = False, verbose: bool = False) -> View:
    """Return the view. quiet: problems only. verbose: passed checks and counters, too."""
    verdict = text.verdict
    about_machine = text.inventory and (verdict.evaluated or verdict.findings) and not quiet
    machine = (Field("machine", text.inventory, "dim"),) if about_machine else ()
    sections = [Section(headline(text), machine)]
    shown: set[tuple[str, ...]] = set()
    for finding in verdict.findings:
        commands = text.commands(finding)
        sections.append(_finding(finding, text, () if commands in shown else commands))
        shown.add(commands)
    others: list[Iterable[Field | Note]] = []
    if not quiet:
        others.append(_informational(verdict, text.instant.wall))
    if verbose:
        others += (map(_counter, verdict.counter_totals), map(_passed, verdict.passed))
    elif not quiet and verdict.evaluated:
        passed = sum(family.checks for family in verdict.passed)
        others.append([Note(f"{count_noun(passed, 'check')} passed; -v lists them", "dim")])
    others.append(map(_unreadable, verdict.read_failures))
    sections += [Section(None, rows) for rows in map(tuple, others) if rows]
    return View(tuple(sections))


def headline(text: VerdictText) -> Heading:
    """Return the conclusion, with the sources that could not be read."""
    health = (text.verdict.known_health or DataStatus.UNKNOWN).value
    return badge_heading(health, health, conclusion(text.hostname, text.verdict, text.reason, text.selection))


def _finding(finding: Finding, text: VerdictText, commands: tuple[str, ...]) -> Section:
    """Return the section of a finding. commands: of its action, unless an earlier finding has the same."""
    option = f" {text.checks_option}" if text.checks_option else ""
    texts = FindingTexts(
        title=finding.title,
        since=f"{format_time(finding.since)}, {format_age(text.instant.wall - finding.since)}",
        evidence=[_evidence(item, text.meanings) for item in finding.evidence[:_EVIDENCE_SHOWN]],
        omitted=len(finding.evidence) - _EVIDENCE_SHOWN,
        processes=first_names(filter(None, dict.fromkeys(map(process_text, finding.evidence))), "; "),
        action=finding.remedy or finding.action.sentence,
        commands=commands,
        see=(Field("see", f"nodeguard explain {finding.check}{option}", "dim"),),
    )
    return finding_section(finding, texts)


def _evidence(evidence: Evidence, meanings: Mapping[str, str]) -> str:
    times = f" ({evidence.count} times)" if evidence.count > 1 else ""
    meaning = f" ({meanings[evidence.text]})" if evidence.text in meanings else ""
    return f"{evidence.source}: {_joined(evidence.text)}{meaning}{times}"


def _joined(text: str) -> str:
    """Return a message of several lines as one, without the prefix that each line repeats."""
    first, *rest = text.splitlines() or [""]
    prefix = first.partition(":")[0] + ":"
    return " ".join((first, *(line.removeprefix(prefix).strip() for line in rest)))


def _informational(verdict: Verdict, now: float) -> Iterator[Field]:
    """Yield what does not affect the node's health: the errors of applications, then the rest."""
    errors: dict[str, list[ApplicationError]] = {}
    others = []
    for finding in verdict.informational:
        listed = application_errors(finding)
        if listed:
            errors.setdefault(finding.remedy, []).extend(listed)
        else:
            others.append(finding)
    for remedy, listed in errors.items():
        listed.sort(key=lambda error: error.evidence.at)
        for error in listed[-_SHOWN:]:
            where = "" if error.target == NODE else f"{_short(error)}, "
            yield Field("application", f"{where}{error_text(error, now)}")
        hidden = len(listed) - _SHOWN
        more = f"{hidden} earlier: see -o json. " if hidden > 0 else ""
        healthy = "The node is healthy. " if is_healthy(verdict) else ""
        yield Field("", f"{more}{healthy}{remedy}")
    for finding in others:
        times = sum(evidence.count for evidence in finding.evidence)
        count = f", {times} times" if times > 1 else ""
        yield Field(
            "info",
            f"{target_text(finding.target, finding.hardware)}: {finding.message}{count} ({finding.title})",
        )


def _short(error: ApplicationError) -> str:
    """Return the GPU of an error by its index, which programs use; by its address if that is not known."""
    index = error.hardware.index if error.hardware else None
    return target_text(error.target) if index is None else f"GPU {index}"


def _counter(total: CounterTotal) -> Field:
    name = total.signal.partition(".")[2]
    text = (
        f"{target_label(total.target)}: {name} {total.value:.0f} in total; --duration shows whether it rises"
    )
    return Field("counter", text)


def _passed(family: PassedFamily) -> Field:
    kinds = (
        f"{count} {NOUNS[kind][count != 1]}" for kind, count in sorted(family.targets.items()) if kind != NODE
    )
    targets = "".join(f", {kind}" for kind in kinds)
    text = f"{family.family}: {count_noun(family.checks, 'check')}{targets}"
    return Field("passed", text, name_style="ok")


def _unreadable(unread: ReadFailure) -> Field:
    targets = "" if unread.targets == (NODE,) else f" of {first_names(map(target_label, unread.targets))}"
    text = unread.source
    if unread.subject != unread.source:
        text = f"{unread.source}{targets}: {first_names(unread.subject.split(', '))}"
    return Field("not read", f"{text}: {unread.reason}", name_style="warning")
