"""Evaluates the diagnosis on simulated faults: python -m bench.simulation --held-out --episodes 30."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from math import inf

import msgspec

from bench.simulation.episode import BEFORE
from bench.simulation.rows import FaultRow, RolloutRow, pooled
from bench.simulation.table import HELD_OUT, TUNING, Inputs, Plan, Table, table
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.usage import whole_number
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import default_policy
from nodeguard.simulate.figures import Share

# A smaller fleet has only one domain that is large enough for a shared fault.
_MIN_NODES, _MAX_NODES = 16, 100_000
_MAX_RUNS = 10_000

# Roll-outs differ less between runs than faults, and each takes longer: so many times fewer of them.
_FEWER_ROLLOUTS = 5


def main(arguments: Sequence[str]) -> None:
    """Run the evaluation and print its tables."""
    parser = ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    add = parser.add_argument
    nodes, runs = whole_number(_MIN_NODES, _MAX_NODES), whole_number(0, _MAX_RUNS)
    add("--nodes", metavar="N", type=nodes, help="nodes of the fleet (2560; 7500 on normal days)")
    add("--episodes", metavar="N", type=runs, default=20, help="episodes of each shared fault (20)")
    add("--no-comparison", action="store_true", help="do not run each episode again without diagnosis")
    add("--rollouts", metavar="N", type=runs, help="runs of each roll-out (a fifth of the episodes)")
    add("--days", metavar="N", type=runs, help="normal days (as many as episodes)")
    add(
        "--before", metavar="SECONDS", type=_duration, default=BEFORE, help="normal time before a fault (6 h)"
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", metavar="N", type=whole_number(0, 2**31), help="first seed (1)")
    seeds.add_argument("--held-out", action="store_true", help="use seeds that no constant was chosen by")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    add("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    plan = plan_of(options)
    catalogue, signals = load_catalogue()
    inputs = Inputs(catalogue, signals, default_policy(catalogue.fault_classes))
    result = table(inputs, plan, options.jobs, lambda step: print(step, file=sys.stderr))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        print("\n".join(table_lines(result)))


def plan_of(options: Namespace) -> Plan:
    """Return the plan of the options; every option that is set applies to all of it."""
    default = Plan()
    first = TUNING if options.seed is None else options.seed
    return Plan(
        nodes=options.nodes or default.nodes,
        quiet_nodes=options.nodes or default.quiet_nodes,
        episodes=options.episodes,
        compares=not options.no_comparison,
        runs=options.episodes // _FEWER_ROLLOUTS if options.rollouts is None else options.rollouts,
        days=options.episodes if options.days is None else options.days,
        before=options.before,
        first=HELD_OUT if options.held_out else first,
    )


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < inf:
        raise ArgumentTypeError(f"'{text}' is invalid: expected a number of seconds, such as 21600")
    return seconds


_FAULTS = (
    "shared fault", "recall", "precision", "diagnosis p50/p95", "quarantines without -> with",
    "wrongly suppressed",
)  # fmt: skip
_ROLLOUTS = (
    "roll-out", "max quarantined", "suppressed", "after p50", "after the fifth node p50/p95",
    "degraded domains",
)  # fmt: skip


def table_lines(result: Table) -> Iterator[str]:
    """Yield the lines of the tables."""
    plan = result.plan
    seeds = "held-out seeds" if plan.first >= HELD_OUT else "tuning seeds"
    yield (
        f"{plan.episodes} episodes of each kind, in a fleet of {plan.nodes} nodes after "
        f"{format_duration(round(plan.before))} of normal operation; {seeds}, from {plan.first}; "
        "intervals at 95%"
    )
    if result.faults:
        recall, precision = pooled(result.faults)
        total = ("all", _share(recall), _share(precision) if precision.of else "-", "", "", "")
        yield ""
        yield from _columns([_FAULTS, *(_fault(row) for row in result.faults), total])
    if result.unfit:
        yield f"too few domains in this fleet: {', '.join(result.unfit)}"
    if result.rollouts:
        yield ""
        yield from _columns([_ROLLOUTS, *(_rollout(row) for row in result.rollouts)])
    quiet = result.quiet
    if quiet is not None:
        yield ""
        yield (
            f"{quiet.days:g} normal days of {quiet.fleet_nodes:,} nodes: "
            f"{quiet.domains:.2f} false domains a day [{quiet.low:.2f}, {quiet.high:.2f}], "
            f"{quiet.nodes:.1f} nodes in them, {quiet.suppressed:.2f} suppressed checks a day"
        )


def _fault(row: FaultRow) -> tuple[str, ...]:
    return (
        row.kind,
        _share(row.recall),
        _share(row.precision) if row.precision.of else "-",
        f"{_seconds(row.p50)} / {_seconds(row.p95)}",
        f"{'-' if row.without is None else f'{row.without:.1f}'} -> {row.quarantines:.1f}",
        str(row.wrongly_suppressed),
    )


def _rollout(row: RolloutRow) -> tuple[str, ...]:
    rollout = row.rollout
    pace = "at once" if not rollout.lasts else f"over {format_duration(round(rollout.lasts))}"
    order = ", rack by rack" if rollout.by_rack else ""
    return (
        f"{rollout.check} on {rollout.share:.0%} {pace}{order}",
        str(row.max_quarantined),
        _share(row.suppressed),
        _seconds(row.p50),
        " / ".join(map(_seconds, row.visible)),
        str(row.domains),
    )


def _share(share: Share) -> str:
    return f"{share.hits / share.of:.2f} [{share.low:.2f}, {share.high:.2f}]"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


if __name__ == "__main__":
    main(sys.argv[1:])
