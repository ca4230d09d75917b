"""The pages of nodeguard simulate. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.simulation.rows import FaultRow, RolloutRow, Share
from bench.simulation.table import HELD_OUT, Table
from nodeguard.cli.render.terminal import StyledLine, StyledText, field_line
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.simulation import SimulationResult


def result_page(one: SimulationResult, policy: Policy | None) -> list[StyledLine]:
    """The page of a run. policy: None where all that may be marked is."""
    return list(_result(one, policy))


def _result(one: SimulationResult, policy: Policy | None) -> Iterator[StyledLine]:
    of = one.settings
    rule = "nodeguard" if of.baseline == "nodeguard" else f"rule {of.baseline}"
    yield StyledLine(
        (StyledText("simulation - ", "strong"),),
        f"{of.nodes} nodes, {of.days:g} day{'' if of.days == 1 else 's'}, seed {of.seed}: {rule}",
    )
    if of.baseline == "nodeguard":
        said = "all that may be marked is" if policy is None else _mode(policy)
        yield field_line("policy", said)
        yield field_line("shared faults", _shared(one))
        yield field_line("false blame", f"{one.false_a_day:.3g} domains a day")
        checks = sorted({held.check for held in one.held})
        if checks:
            yield field_line("held", f"{len(one.held)} times a check: {', '.join(checks)}")
        yield field_line("incidents", f"{one.incidents:.4g} a day, {one.domains:.3g} of domains and checks")
    right = f", {one.rightly / one.quarantines:.1%} of them rightly" if one.quarantines else ""
    yield field_line("quarantines", f"{one.quarantines}{right}; {one.of_shared} for a shared fault")
    yield field_line(
        "capacity out", f"{one.needed:.3%} needed, {one.needless:.3%} needless; at most {one.most} nodes"
    )
    gangs = one.gangs
    yield field_line(
        "gangs",
        f"{gangs.jobs} jobs of {gangs.gpus} GPUs: {gangs.failures:.3f} failures a job-day, "
        f"{gangs.lost:.2%} of their time lost"
        if gangs.jobs
        else f"none: a job of {gangs.gpus} GPUs does not fit",
    )


def _mode(policy: Policy) -> str:
    if policy.pause:
        return "paused: nothing new is marked"
    if policy.mode == Mode.OBSERVE and not policy.modes:
        return "observes: nothing is marked"
    views = ", ".join(policy.diagnosis.enforce)
    return f"as the file says; domains of {views} are marked" if views else "as the file says"


def _shared(one: SimulationResult) -> str:
    if not one.shared:
        return "none happened"
    took = ""
    if one.blame_p50 is not None and one.blame_p95 is not None:
        took = f" after {format_duration(round(one.blame_p50))}, {format_duration(round(one.blame_p95))} at the 95th percentile"
    precision = "" if one.precision is None else f"; {one.precision:.1%} of what was blamed was to blame"
    return f"{one.found} of {one.shared} blamed{took}{precision}"


_FAULTS = (
    "planted", "recall", "precision", "blame p50/p95", "quarantines without -> with", "wrong holds",
)  # fmt: skip
_ROLLOUTS = ("roll-out", "most nodes out", "held", "after p50", "domains blamed")


def table_lines(one: Table) -> Iterator[str]:
    """The lines of the table."""
    seeds = "held-out seeds" if one.plan.first >= HELD_OUT else "tuning seeds"
    yield (
        f"{one.plan.episodes} episodes of each, in a fleet of {one.plan.nodes} nodes that has gone on as "
        f"usual for {format_duration(round(one.plan.before))}; {seeds}, from {one.plan.first} on; intervals at 95%"
    )
    yield ""
    yield from _columns([_FAULTS, *(_fault(row) for row in one.faults)])
    yield ""
    yield from _columns([_ROLLOUTS, *(_rollout(row) for row in one.rollouts)])
    noise = one.noise
    if noise is not None:
        yield ""
        yield (
            f"{noise.days:g} days as usual of 7,500 nodes: {noise.domains:.2f} false domains a day "
            f"[{noise.low:.2f}, {noise.high:.2f}], {noise.marked:.1f} nodes in them, {noise.holds:.2f} "
            "checks held a day"
        )


def _fault(row: FaultRow) -> tuple[str, ...]:
    return (
        row.kind,
        _share(row.recall),
        _share(row.precision) if row.precision.of else "-",
        f"{_seconds(row.p50)} / {_seconds(row.p95)}",
        f"{row.without:.1f} -> {row.quarantines:.1f}",
        str(row.wrong_holds),
    )


def _rollout(row: RolloutRow) -> tuple[str, ...]:
    one = row.rollout
    pace = "at once" if not one.lasts else f"over {format_duration(round(one.lasts))}"
    where = ", rack by rack" if one.by_rack else ""
    return (
        f"{one.check} on {one.share:.0%} {pace}{where}",
        str(row.most),
        f"{row.held} of {row.runs}",
        _seconds(row.p50),
        str(row.blamed),
    )


def _share(one: Share) -> str:
    return f"{one.hits / one.of:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
