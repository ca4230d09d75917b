"""The table of nodeguard check: the verdict, the findings, and the unread data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from nodeguard.cli.render.terminal import StyledLine, StyledText, format_age, format_time
from nodeguard.cli.scope import NOUNS
from nodeguard.fleet_api.text.finding import description_lines
from nodeguard.fleet_api.text.phrases import command_lines, first_names, target_text
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

_FIELD = 12
_SHOWN = 4
_EVIDENCE_SHOWN = 3


class VerdictText(NamedTuple):
    """The text in the table of a verdict.

    meanings: of coded readings in the evidence. inventory: of the machine, empty for none. reason: why no
    check could be evaluated, where it is known. checks_option: the --checks options of the command line.
    families: those that were evaluated, empty for all. commands: of a finding's action.
    """

    hostname: str
    verdict: Verdict
    instant: Instant
    meanings: Mapping[str, str]
    inventory: str = ""
    reason: str = ""
    checks_option: str = ""
    families: tuple[str, ...] = ()
    commands: Callable[[Finding], tuple[str, ...]] = no_commands


def verdict_lines(text: VerdictText, *, quiet: bool = False, verbose: bool = False) -> list[StyledLine]:
    """Return the lines of the table. quiet: problems only. verbose: passed checks and counters, too."""
    verdict = text.verdict
    lines = [headline(text)]
    if text.inventory and (verdict.evaluated or verdict.findings) and not quiet:
        lines.append(_field("machine", text.inventory, "dim"))
    shown: set[tuple[str, ...]] = set()
    for finding in verdict.findings:
        commands = text.commands(finding)
        lines += [StyledLine(), *_finding(finding, text, () if commands in shown else commands)]
        shown.add(commands)
    if not quiet:
        lines += _section(_informational(verdict, text.instant.wall))
    if verbose:
        lines += _section(_counter(total) for total in verdict.counter_totals)
        lines += _section(_passed(family) for family in verdict.passed)
    elif not quiet and verdict.evaluated:
        lines += [StyledLine(), StyledLine(text=_evaluated(verdict), style="dim")]
    lines += _section(_unreadable(unread) for unread in verdict.read_failures)
    return lines


def headline(text: VerdictText) -> StyledLine:
    """Return the conclusion in one line, with the sources that could not be read."""
    verdict = text.verdict
    health = (verdict.known_health or DataStatus.UNKNOWN).value
    head = (StyledText(health.upper(), health), StyledText("  "))
    return StyledLine(head, conclusion(text.hostname, verdict, text.reason, text.families), "strong")


def _evaluated(verdict: Verdict) -> str:
    checks = sum(family.checks for family in verdict.passed)
    return f"{checks} check{'' if checks == 1 else 's'} passed; -v lists them"


def _finding(finding: Finding, text: VerdictText, commands: Sequence[str]) -> Iterator[StyledLine]:
    """Yield the lines of a finding. commands: of its action, unless an earlier finding has the same."""
    since = f"{format_time(finding.since)}, {format_age(text.instant.wall - finding.since)}"
    evidence = (_evidence(item, text.meanings) for item in finding.evidence[:_EVIDENCE_SHOWN])
    omitted = len(finding.evidence) - _EVIDENCE_SHOWN
    yield from description_lines(finding, finding.title, since, evidence, omitted, _field)
    if names := first_names(filter(None, dict.fromkeys(map(process_text, finding.evidence))), "; "):
        yield _field("process", names)
    yield _field("action", finding.remedy or finding.action.sentence)
    yield from command_lines(commands, _field)
    option = f" {text.checks_option}" if text.checks_option else ""
    yield _field("see", f"nodeguard explain {finding.check}{option}", "dim")


def _evidence(evidence: Evidence, meanings: Mapping[str, str]) -> str:
    times = f" ({evidence.count} times)" if evidence.count > 1 else ""
    meaning = f" ({meanings[evidence.text]})" if evidence.text in meanings else ""
    return f"{evidence.source}: {_joined(evidence.text)}{meaning}{times}"


def _joined(text: str) -> str:
    """Return a message of several lines as one, without the prefix that each line repeats."""
    first, *rest = text.splitlines() or [""]
    prefix = first.partition(":")[0] + ":"
    return " ".join((first, *(line.removeprefix(prefix).strip() for line in rest)))


def _field(name: str, text: str, style: str = "") -> StyledLine:
    return StyledLine((StyledText(f"  {name:<{_FIELD - 2}}", "dim"),), text, style)


def _section(lines: Iterator[StyledLine]) -> list[StyledLine]:
    listed = list(lines)
    return [StyledLine(), *listed] if listed else []


def _informational(verdict: Verdict, now: float) -> Iterator[StyledLine]:
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
            yield _named("application", f"{where}{error_text(error, now)}")
        hidden = len(listed) - _SHOWN
        more = f"{hidden} earlier: see -o json. " if hidden > 0 else ""
        healthy = "The node is healthy. " if is_healthy(verdict) else ""
        yield _named("", f"{more}{healthy}{remedy}")
    for finding in others:
        times = sum(evidence.count for evidence in finding.evidence)
        count = f", {times} times" if times > 1 else ""
        yield _named(
            "info",
            f"{target_text(finding.target, finding.hardware)}: {finding.message}{count} ({finding.title})",
        )


def _short(error: ApplicationError) -> str:
    """Return the GPU of an error by its index, which programs use; by its address if that is not known."""
    index = error.hardware.index if error.hardware else None
    return target_text(error.target) if index is None else f"GPU {index}"


def _named(name: str, text: str) -> StyledLine:
    return StyledLine((StyledText(f"{name:<{_FIELD}}", "dim"),), text)


def _counter(total: CounterTotal) -> StyledLine:
    name = total.signal.partition(".")[2]
    text = (
        f"{target_label(total.target)}: {name} {total.value:.0f} in total; --duration shows whether it rises"
    )
    return StyledLine((StyledText(f"{'counter':<{_FIELD}}", "dim"),), text)


def _passed(family: PassedFamily) -> StyledLine:
    kinds = (
        f"{count} {NOUNS[kind][count != 1]}" for kind, count in sorted(family.targets.items()) if kind != NODE
    )
    targets = "".join(f", {kind}" for kind in kinds)
    checks = f"{family.checks} {'check' if family.checks == 1 else 'checks'}"
    return StyledLine((StyledText(f"{'passed':<{_FIELD}}", "ok"),), f"{family.family}: {checks}{targets}")


def _unreadable(unread: ReadFailure) -> StyledLine:
    targets = "" if unread.targets == (NODE,) else f" of {first_names(map(target_label, unread.targets))}"
    text = unread.source
    if unread.subject != unread.source:
        text = f"{unread.source}{targets}: {first_names(unread.subject.split(', '))}"
    return StyledLine((StyledText(f"{'not read':<{_FIELD}}", "warning"),), f"{text}: {unread.reason}")
