"""The results of nodeguard doctor as text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.doctor.diagnostics import Diagnostic, DiagnosticStatus

_STYLES = {
    DiagnosticStatus.PASSED: "ok",
    DiagnosticStatus.SKIPPED: "dim",
    DiagnosticStatus.WARNING: "warning",
    DiagnosticStatus.FAILED: "fatal",
}

# Columns of a status.
_STATUS = 9


def diagnostic_lines(results: Sequence[Diagnostic]) -> list[StyledLine]:
    """Return the lines of the results: a summary, then each check, those with a remedy in two lines."""
    return [_summary(results), StyledLine(), *(line for result in results for line in _lines(result))]


def _summary(results: Sequence[Diagnostic]) -> StyledLine:
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status.value}" for status in reversed(DiagnosticStatus) if counts[status]]
    worst = max((result.status for result in results), key=list(DiagnosticStatus).index)
    return StyledLine((StyledText("nodeguard doctor: ", "strong"),), ", ".join(parts), _STYLES[worst])


def _lines(result: Diagnostic) -> Iterator[StyledLine]:
    head = StyledText(f"{result.status.value:<{_STATUS}}", _STYLES[result.status])
    yield StyledLine((head,), f"{result.name}: {result.message}")
    if result.remedy:
        yield StyledLine((StyledText(" " * _STATUS), StyledText("fix: ", "strong")), result.remedy)
