"""The view of the results of nodeguard doctor. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nodeguard.doctor.diagnostics import Diagnostic, DiagnosticStatus
from nodeguard.fleet_api.view import Field, Heading, Section, View

_STYLES = {
    DiagnosticStatus.PASSED: "ok",
    DiagnosticStatus.SKIPPED: "dim",
    DiagnosticStatus.WARNING: "warning",
    DiagnosticStatus.FAILED: "fatal",
}


def diagnostics_view(results: Sequence[Diagnostic]) -> View:
    """Return the view: a summary, then each check, with its remedy."""
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status.value}" for status in reversed(DiagnosticStatus) if counts[status]]
    worst = max((result.status for result in results), key=list(DiagnosticStatus).index)
    summary = Heading("nodeguard doctor", "strong", ", ".join(parts), _STYLES[worst], separator=": ")
    return View((Section(summary), *map(_result, results)))


def _result(result: Diagnostic) -> Section:
    heading = Heading(result.status.value, _STYLES[result.status], f"{result.name}: {result.message}", "")
    remedy = (Field("fix", result.remedy, name_style="strong"),) if result.remedy else ()
    return Section(heading, remedy, "item")
