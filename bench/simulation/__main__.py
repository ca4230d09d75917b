"""Evaluates the diagnosis on simulated faults: python -m bench.simulation --held-out --episodes 30."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence

import msgspec

from bench.simulation.episode import BEFORE
from bench.simulation.rows import FaultRow, RolloutRow, Share
from bench.simulation.table import HELD_OUT, TUNING, Inputs, Plan, Table, table
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import default_policy

# Smaller fleets have too few leaves and racks for every kind of shared fault.
_MIN_NODES = 1100


def main(arguments: Sequence[str]) -> None:
    """Run the evaluation and print its tables."""
    parser = ArgumentParser(prog="python -m bench.simulation", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2560, help="nodes of an episode (2560)")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each shared fault (20)")
    parser.add_argument(
        "--before", metavar="SECONDS", type=float, default=BEFORE, help="normal time before a fault (6 h)"
    )
    parser.add_argument("--held-out", action="store_true", help="use seeds that no constant was chosen by")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.nodes < _MIN_NODES:
        parser.error(f"--nodes: at least {_MIN_NODES}, so that there is a domain for each fault")
    plan = Plan(
        nodes=options.nodes,
        episodes=options.episodes,
        days=options.episodes,
        before=options.before,
        first=HELD_OUT if options.held_out else TUNING,
    )
    catalogue, signals = load_catalogue()
    inputs = Inputs(catalogue, signals, default_policy(catalogue.fault_classes))
    result = table(inputs, plan, options.jobs, lambda step: print(step, file=sys.stderr))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        print("\n".join(table_lines(result)))


_FAULTS = (
    "shared fault", "recall", "precision", "diagnosis p50/p95", "quarantines without -> with",
    "wrongly suppressed",
)  # fmt: skip
_ROLLOUTS = ("roll-out", "max quarantined", "suppressed", "after p50", "degraded domains")


def table_lines(result: Table) -> Iterator[str]:
    """Yield the lines of the tables."""
    plan = result.plan
    seeds = "held-out seeds" if plan.first >= HELD_OUT else "tuning seeds"
    yield (
        f"{plan.episodes} episodes of each kind, in a fleet of {plan.nodes} nodes after "
        f"{format_duration(round(plan.before))} of normal operation; {seeds}, from {plan.first}; "
        "intervals at 95%"
    )
    yield ""
    yield from _columns([_FAULTS, *(_fault(row) for row in result.faults)])
    yield ""
    yield from _columns([_ROLLOUTS, *(_rollout(row) for row in result.rollouts)])
    quiet = result.quiet
    if quiet is not None:
        yield ""
        yield (
            f"{quiet.days:g} normal days of 7,500 nodes: {quiet.domains:.2f} false domains a day "
            f"[{quiet.low:.2f}, {quiet.high:.2f}], {quiet.nodes:.1f} nodes in them, "
            f"{quiet.suppressed:.2f} suppressed checks a day"
        )


def _fault(row: FaultRow) -> tuple[str, ...]:
    return (
        row.kind,
        _share(row.recall),
        _share(row.precision) if row.precision.of else "-",
        f"{_seconds(row.p50)} / {_seconds(row.p95)}",
        f"{row.without:.1f} -> {row.quarantines:.1f}",
        str(row.wrongly_suppressed),
    )


def _rollout(row: RolloutRow) -> tuple[str, ...]:
    rollout = row.rollout
    pace = "at once" if not rollout.lasts else f"over {format_duration(round(rollout.lasts))}"
    order = ", rack by rack" if rollout.by_rack else ""
    return (
        f"{rollout.check} on {rollout.share:.0%} {pace}{order}",
        str(row.max_quarantined),
        f"{row.suppressed} of {row.runs}",
        _seconds(row.p50),
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
