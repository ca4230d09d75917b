"""The printed tables of an evaluation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.evaluation.evaluate import HELD_OUT, EvaluationResult
from bench.evaluation.figures import Share
from bench.evaluation.rollouts import rollout_title
from bench.evaluation.rows import FaultRow, NormalDaysRow, RolloutRow, pooled
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.fleet_api.text.phrases import count_noun
from nodeguard.judge.formatting import format_duration

_FAULT_HEADS = (
    "SHARED FAULT", "RECALL", "PRECISION", "DELAY 50%", "DELAY 95%", "QUARANTINED", "WITHOUT DIAGNOSIS",
    "WRONGLY SUPPRESSED",
)  # fmt: skip
_ROLLOUT_HEADS = (
    "FALSE ALARMS", "QUARANTINED", "SUPPRESSED", "DELAY 50%", "FROM 5TH NODE 50%", "FROM 5TH NODE 95%",
    "DOMAINS",
)  # fmt: skip

_CHOSEN_WITH = (
    "; the constants of the diagnosis were chosen with these seeds: "
    f"use --seed {HELD_OUT} or more for evidence"
)


def evaluation_lines(result: EvaluationResult) -> Iterator[StyledLine]:
    """Yield the tables of the shared faults and of the rollouts, and the figures of normal days."""
    plan = result.plan
    remark = "" if plan.seed >= HELD_OUT else _CHOSEN_WITH
    yield StyledLine(
        (StyledText("evaluation - ", "strong"),),
        f"{count_noun(plan.nodes, 'node')}, seeds from {plan.seed}; intervals at 95%{remark}",
    )
    if result.faults:
        recall, precision = pooled(result.faults)
        total = ("all", _share(recall), _share(precision), "", "", "", "", "")
        yield StyledLine()
        yield StyledLine(
            text=f"{count_noun(plan.episodes, 'episode')} of each kind, after "
            f"{format_duration(round(plan.before))} of normal operation"
        )
        yield from _table(_FAULT_HEADS, [*map(_fault, result.faults), total])
    if result.unfit and plan.episodes:
        unfit = f"not evaluated, as the fleet has too few domains: {', '.join(result.unfit)}"
        yield StyledLine(text=f"{unfit}; use more --nodes", style="dim")
    if result.rollouts:
        yield StyledLine()
        yield StyledLine(text=f"{count_noun(plan.rollout_runs, 'run')} of each rollout")
        yield from _table(_ROLLOUT_HEADS, [*map(_rollout, result.rollouts)])
    if result.normal_days is not None:
        yield StyledLine()
        yield StyledLine(text=_normal_days(result.normal_days))


def _fault(row: FaultRow) -> tuple[str, ...]:
    return (
        row.kind,
        _share(row.recall),
        _share(row.precision),
        _seconds(row.p50),
        _seconds(row.p95),
        f"{row.quarantines:.1f}",
        "-" if row.without is None else f"{row.without:.1f}",
        str(row.wrongly_suppressed),
    )


def _rollout(row: RolloutRow) -> tuple[str, ...]:
    return (
        rollout_title(row.rollout),
        str(row.max_quarantined),
        _share(row.suppressed),
        _seconds(row.p50),
        *map(_seconds, row.visible),
        str(row.domains),
    )


def _normal_days(row: NormalDaysRow) -> str:
    return (
        f"{count_noun(row.days, 'normal day')}: {row.domains:.2f} false domains a day "
        f"[{row.low:.2f}, {row.high:.2f}], {row.suppressed:.2f} suppressed checks"
    )


def _share(share: Share) -> str:
    return f"{share.hits / share.of:.2f} [{share.low:.2f}, {share.high:.2f}]" if share.of else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[StyledLine]:
    """Yield the rows under their heads. A column without a value is left out."""
    columns = [column for column in range(len(heads)) if any(row[column] not in {"", "-"} for row in rows)]
    widths = {column: max(len(row[column]) for row in (heads, *rows)) for column in columns}
    for row, style in ((heads, "dim"), *((row, "") for row in rows)):
        cells = (row[column].ljust(widths[column]) for column in columns)
        yield StyledLine((StyledText("  ".join(cells).rstrip(), style),))
