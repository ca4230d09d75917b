"""nodeguard simulate: what a policy would do to a fleet, in virtual time."""

from __future__ import annotations

import os
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.simulation.episode import BEFORE, enforcing
from bench.simulation.table import HELD_OUT, TUNING, Knowledge, Plan, table
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks
from nodeguard.cli.render.terminal import print_lines
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.baseline import BASELINES
from nodeguard.simulate.plot import Curve, svg
from nodeguard.simulate.simulation import SimulationSettings
from nodeguard.simulate.simulation import simulate as simulated

# Nodes of a fleet, and of one that shared faults are planted in.
_NODES, _EPISODE_NODES = 7500, 2560

# Fewer nodes have too few leaves and racks for every kind of shared fault.
_LEAST = 1100


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    _refuse(options)
    catalogue, signals = load_catalogue(options.checks)
    policy = _policy(options.policy, catalogue)
    if options.table:
        _table(options, Knowledge(catalogue, signals, policy or Policy()))
    else:
        _run(options, SimulatedAgent(catalogue, signals), policy)
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard simulate",
        description="Says what a policy would do to a fleet: the real judge and planner, in virtual time.",
        epilog="Exit codes: 0 told, whatever it says; 3 usage error.",
    )
    add = parser.add_argument
    add(
        "--nodes",
        metavar="N",
        type=_number,
        help=f"nodes ({_NODES}; with --table {_EPISODE_NODES})",
    )
    add("--days", metavar="D", type=_days, default=30.0, help="days to simulate (30)")
    add(
        "--seed",
        metavar="N",
        type=int,
        default=1,
        help="what chance begins with (1); the same gives the same",
    )
    add("--policy", metavar="FILE", help="the policy file (without one: all that may be marked is)")
    add_checks(parser)
    add("--baseline", choices=BASELINES[1:], help="what a simpler rule would do instead")
    add("--gang", metavar="GPUS", type=_number, default=512, help="GPUs of each gang job (512)")
    add("--plot", metavar="FILE.svg", help="draw how many nodes were out, over time")
    add("--table", action="store_true", help="plant each kind of shared fault many times")
    add("--episodes", metavar="N", type=_number, default=20, help="with --table: how often each (20)")
    about = "with --table: time as usual before each fault (6h)"
    add("--before", metavar="TIME", type=duration, default=BEFORE, help=about)
    add("--held-out", action="store_true", help="with --table: by seeds that no constant was chosen by")
    add(
        "--jobs",
        metavar="N",
        type=_number,
        default=os.cpu_count() or 1,
        help="with --table: processes",
    )
    add("--format", choices=("text", "json"), default="text", help="how to say it")
    return parser


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:7]) <= 100_000:
        raise ArgumentTypeError(f"'{text}' is no number that can be simulated: write one from 1 to 100000")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0.0 < days <= 365.0:
        raise ArgumentTypeError(f"'{text}' is no number of days: write one up to 365, such as 0.5 or 30")
    return days


def _refuse(options: Namespace) -> None:
    if options.table and (options.baseline or options.plot):
        raise UsageError("--table is about the rule itself: leave --baseline and --plot out")
    if options.table and options.nodes is not None and options.nodes < _LEAST:
        raise UsageError(f"--table wants {_LEAST} nodes at least, so that there is a place for each fault")
    if options.held_out and not options.table:
        raise UsageError("--held-out is about the table: say --table, too, or choose a --seed")


def _policy(file: str | None, catalogue: Catalogue) -> Policy | None:
    if file is None:
        return None
    from nodeguard.aggregator.policy.policy_file import read_policy  # noqa: PLC0415 - brings what only files of YAML need
    from nodeguard.config.yaml_document import ConfigError  # noqa: PLC0415

    try:
        found, doubts = read_policy(Path(file), {one.id: one.health for one in catalogue.checks}, time.time())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    for doubt in doubts:
        print_error(f"nodeguard simulate: {doubt}")
    return found


def _run(options: Namespace, agent: SimulatedAgent, policy: Policy | None) -> None:
    settings = SimulationSettings(
        options.nodes or _NODES, options.days, options.seed, options.baseline or BASELINES[0], options.gang
    )
    curve = Curve()
    result = simulated(agent, policy or enforcing(Policy()), settings, [curve])
    if options.plot:
        title = f"nodes out: {settings.nodes} nodes, {settings.days:g} days, {settings.baseline}"
        try:
            Path(options.plot).write_text(svg(curve, settings.days, title), "utf-8")
        except OSError as error:
            raise UsageError(f"--plot {options.plot}: {error.strerror}") from None
    if options.format == "json":
        print_output(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        from nodeguard.cli.render.simulate import result_page  # noqa: PLC0415 - one of two formats

        print_lines(result_page(result, policy))


def _table(options: Namespace, known: Knowledge) -> None:
    plan = Plan(
        nodes=options.nodes or _EPISODE_NODES,
        episodes=options.episodes,
        days=options.episodes,
        before=options.before,
        first=HELD_OUT if options.held_out else TUNING,
    )
    found = table(known, plan, options.jobs, lambda what: print_error(f"nodeguard simulate: {what}"))
    if options.format == "json":
        print_output(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        from nodeguard.cli.render.simulate import table_lines  # noqa: PLC0415 - one of two formats

        print_output("\n".join(table_lines(found)))
