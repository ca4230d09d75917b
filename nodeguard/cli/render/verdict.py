"""The view of nodeguard check: the verdict, the findings, and the unread data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.cli.render.conclusion import (
    ApplicationError,
    application_errors,
    are_gpus_unsuspected,
    are_programs_first,
    error_text,
    finding_text,
    is_healthy,
    no_commands,
    preceding_fault,
    process_text,
    suspected_gpus,
)
from nodeguard.cli.render.terminal import format_time
from nodeguard.cli.scope import reported_health
from nodeguard.fleet_api.text.finding import FindingTexts, finding_section
from nodeguard.fleet_api.text.wording import count_noun, first_names, format_age, target_text
from nodeguard.fleet_api.view import Field, Heading, Note, Section, View, badge_heading
from nodeguard.model.finding import CounterTotal, Evidence, Finding, PassedFamily, ReadFailure, Verdict
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import Instant
from nodeguard.model.target import NODE, NOUNS, target_label


class Detail(NamedTuple):
    """How much of a verdict a view shows."""

    findings: int | None
    """Findings in full, the worst first; None for all."""
    lines: int | None = None
    """Further findings, with a line each."""
    evidence: int = 3
    """Pieces of evidence of a finding; 0 leaves out its component, serial number and processes, too."""
    errors: int = 4
    """Errors of applications with one remedy; 0 for their number only."""
    others: int | None = None
    """Other findings that do not affect the health, and unread data, each."""


EVERYTHING = Detail(None)


class VerdictText(NamedTuple):
    """What the view of a verdict needs.

    conclusion: the first line. meanings: of coded readings in the evidence. inventory: of the machine, empty
    for none. checks_option: the --checks options of the command line. commands: of a finding's action.
    is_partial: whether only some checks or GPUs were evaluated. elsewhere: findings of the node that are not
    about the selected GPUs; they may have ended a program. unrecorded: see CheckResult.
    """

    conclusion: str
    verdict: Verdict
    instant: Instant
    meanings: Mapping[str, str]
    inventory: str = ""
    checks_option: str = ""
    commands: Callable[[Finding], tuple[str, ...]] = no_commands
    is_partial: bool = False
    elsewhere: tuple[Finding, ...] = ()
    unrecorded: str = ""


def verdict_view(
    text: VerdictText, *, quiet: bool = False, verbose: bool = False, detail: Detail = EVERYTHING
) -> View:
    """Return the view. quiet: problems only. verbose: passed checks and counters, too."""
    verdict = text.verdict
    about_machine = text.inventory and (verdict.evaluated or verdict.findings) and not quiet
    facts = [Field("machine", text.inventory, "dim")] if about_machine else []
    if text.unrecorded and not quiet:
        facts.append(Field("missing", text.unrecorded, name_style="warning"))
    sections = [Section(headline(text), tuple(facts))]
    programs = () if quiet else tuple(_program_errors(text, detail))
    are_first = programs and are_programs_first(verdict)
    if are_first:
        sections.append(Section(None, programs))
    shown: set[tuple[str, ...]] = set()
    in_full = len(verdict.findings) if detail.findings is None else detail.findings
    for finding in verdict.findings[:in_full]:
        commands = text.commands(finding)
        sections.append(_finding(finding, text, () if commands in shown else commands, detail))
        shown.add(commands)
    sections += map(_line, verdict.findings[in_full:][: detail.lines])
    others: list[Iterable[Field | Note]] = []
    if not quiet:
        others.append((*(() if are_first else programs), *_notes(text, detail)))
    if verbose:
        others += (map(_counter, verdict.counter_totals), map(_passed, verdict.passed))
    others.append(map(_unreadable, verdict.read_failures[: detail.others]))
    if not verbose:
        others.append(_last(verdict, detail, quiet=quiet))
    sections += [Section(None, rows) for rows in map(tuple, others) if rows]
    return View(tuple(sections))


def _last(verdict: Verdict, detail: Detail, *, quiet: bool) -> Iterator[Note]:
    """Yield the last line: the number of passed checks, and what only -v shows."""
    omitted = []
    if detail.findings is not None and detail.lines is not None:
        omitted.append((len(verdict.findings) - detail.findings - detail.lines, "finding"))
    if detail.others is not None:
        notes = 0 if quiet else sum(not finding.is_application_error for finding in verdict.informational)
        omitted += (
            (notes - detail.others, "note"),
            (len(verdict.read_failures) - detail.others, "failed reading"),
        )
    listed = ", ".join(
        f"{count} more {noun}{'s' if count > 1 else ''}" for count, noun in omitted if count > 0
    )
    more = ""
    if detail != EVERYTHING:
        more = f"{listed or 'more details'}: add -v to see everything"
    if quiet or not verdict.passed:
        if more:
            yield Note(more, "dim")
        return
    passed = count_noun(sum(family.checks for family in verdict.passed), "check")
    yield Note(f"{passed} passed; {more or '-v lists them'}", "dim")


def headline(text: VerdictText) -> Heading:
    """Return the conclusion, with the sources that could not be read."""
    health = reported_health(text.verdict).value
    return badge_heading(health, health, text.conclusion)


def _line(finding: Finding) -> Section:
    """Return the line of a finding: its title, its target and its action."""
    text = finding_text(finding, _short(finding.target, finding.hardware))
    heading = badge_heading(finding.health.value, finding.health.value, text)
    return Section(replace(heading, text_style=""), form="item")


def _finding(finding: Finding, text: VerdictText, commands: tuple[str, ...], detail: Detail) -> Section:
    """Return the section of a finding. commands: of its action, unless an earlier finding has the same."""
    option = f" {text.checks_option}" if text.checks_option else ""
    processes = map(process_text, finding.evidence if detail.evidence else ())
    texts = FindingTexts(
        title=finding.title,
        since=f"{format_time(finding.since)}, {format_age(text.instant.wall - finding.since)}",
        evidence=[_evidence(item, text.meanings) for item in finding.evidence[: detail.evidence]],
        omitted=len(finding.evidence) - detail.evidence if detail.evidence else 0,
        processes=first_names(dict.fromkeys(filter(None, processes)), "; "),
        action=finding.remedy or finding.action.sentence,
        commands=commands,
        see=(Field("see", f"nodeguard explain {finding.check}{option}", "dim"),),
    )
    if not detail.evidence:
        hardware = finding.hardware and Hardware(index=finding.hardware.index)
        finding = replace(finding, component="", hardware=hardware)
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


def _program_errors(text: VerdictText, detail: Detail) -> Iterator[Field]:
    """Yield the errors of applications, with their cause and remedy."""
    verdict = text.verdict
    errors: dict[str, list[ApplicationError]] = {}
    after: dict[Finding, list[ApplicationError]] = {}
    for finding in verdict.informational:
        for error in application_errors(finding):
            fault = preceding_fault(error, (*verdict.findings, *text.elsewhere))
            if fault is None:
                errors.setdefault(finding.remedy, []).append(error)
            else:
                after.setdefault(fault, []).append(error)
    for fault, listed in after.items():
        count = count_noun(len(listed), "error")
        name = f"{fault.title}: {_short(fault.target, fault.hardware)}"
        yield Field(
            "application",
            f"{count} of programs within a minute after {name}. Repair the node first: the fault may have "
            "ended these programs.",
        )
    if errors and not detail.errors:
        count = count_noun(sum(map(len, errors.values())), f"{'other ' if after else ''}error")
        yield Field("application", f"{count} of programs: -v shows the programs and what to do")
        errors = {}
    for remedy, listed in errors.items():
        listed.sort(key=lambda error: error.evidence.at)
        for error in listed[-detail.errors :]:
            where = "" if error.target == NODE else f"{_short(error.target, error.hardware)}, "
            yield Field("application", f"{where}{error_text(error, text.instant.wall)}")
        hidden = len(listed) - detail.errors
        option = "-v" if detail.errors < EVERYTHING.errors else "-o json"
        more = f"{count_noun(hidden, 'other error')} before: see {option}. " if hidden > 0 else ""
        yield Field("", f"{more}{_cause_and_remedy(text, listed, remedy)}")


def _notes(text: VerdictText, detail: Detail) -> Iterator[Field]:
    """Yield the other findings that do not affect the node's health."""
    others = [finding for finding in text.verdict.informational if not application_errors(finding)]
    for finding in others[: detail.others]:
        times = sum(evidence.count for evidence in finding.evidence)
        count = f", {times} times" if times > 1 else ""
        yield Field(
            "info",
            f"{target_text(finding.target, finding.hardware)}: {finding.message}{count} ({finding.title})",
        )


def _cause_and_remedy(text: VerdictText, errors: Sequence[ApplicationError], remedy: str) -> str:
    """Return whether the node may have caused the errors of applications, and what to do. remedy: for the
    program.
    """
    verdict = text.verdict
    if is_healthy(verdict) and not text.is_partial:
        return f"The program caused this error. The node is healthy. {remedy}"
    gpus = {error.target: _short(error.target, error.hardware) for error in errors}
    if suspects := suspected_gpus(verdict, gpus):
        names = first_names(gpus[target] for target in suspects)
        others = f" {remedy}" if len(suspects) < len(gpus) else ""
        return f"A check finds a fault of {names}: act on it first.{others}"
    if not verdict.evaluated or not are_gpus_unsuspected(verdict, errors):
        return remedy
    return f"No check finds a fault of {first_names(gpus.values())}. {remedy}"


def _short(target: str, hardware: Hardware | None) -> str:
    """Return a GPU by its index, which programs use; by its address if that is not known."""
    index = hardware.index if hardware else None
    return target_text(target) if index is None else f"GPU {index}"


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
