"""nodeguard simulate: the effect of a policy on a simulated fleet, in virtual time."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks, add_output, load_policy
from nodeguard.cli.progress import elapsed
from nodeguard.cli.render.scenario import scenarios_view
from nodeguard.cli.render.terminal import PLAIN, format_view
from nodeguard.cli.streams import document_or_text, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, whole_number
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.fleet_api.view import Field, Heading, Section, View
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import Mode, Policy, default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.scenario_run import run_scenario
from nodeguard.simulate.scenarios import SCENARIOS
from nodeguard.simulate.simulation import (
    Interval,
    SimulationResult,
    SimulationSettings,
    enforce_all,
    simulate,
)

_MAX_NODES, _MAX_DAYS = 100_000, 365


# Options of a fleet with random faults, with their defaults; a scenario has its own fleet and length.
_NODES, _DAYS = 7500, 30.0


def result_view(result: SimulationResult, policy: Policy | None) -> View:
    """Return the view of a result. policy: None if all marks were enforced."""
    settings = result.settings
    title = f"{count_noun(settings.nodes, 'node')}, {count_noun(settings.days, 'day')}, seed {settings.seed}"
    heading = Heading("simulation", "strong", title, "", separator=" - ")
    return View((Section(heading, tuple(_figures(result, policy))),))


def _figures(result: SimulationResult, policy: Policy | None) -> Iterator[Field]:
    yield Field("policy", "all marks are enforced" if policy is None else _mode(policy))
    yield Field("shared faults", _shared_faults(result))
    low, high = result.intervals.false_domains_per_day
    yield Field("false domains", f"{result.false_domains_per_day:.3g} a day [{low:.2g} to {high:.2g}]")
    checks = sorted({event.check for event in result.suppressed_checks})
    if checks:
        yield Field("suppressed", f"{len(result.suppressed_checks)} times a check: {', '.join(checks)}")
    yield Field(
        "incidents",
        f"{result.incidents_per_day:.4g} a day, {result.domain_incidents_per_day:.3g} of domains and checks",
    )
    correct = ""
    if result.quarantines:
        correct_share = result.correct_quarantines / result.quarantines
        correct = f", {correct_share:.1%}{_interval(result.intervals.correct_quarantines)} correct"
    yield Field(
        "quarantines", f"{result.quarantines}{correct}; {result.shared_fault_quarantines} for a shared fault"
    )
    yield Field(
        "capacity lost",
        f"{result.justified_capacity_lost:.3%} justified, {result.unjustified_capacity_lost:.3%} unjustified;"
        f" at most {count_noun(result.max_quarantined, 'node')} at a time",
    )
    yield Field("intervals", "in brackets, at 95%")


def _mode(policy: Policy) -> str:
    if policy.pause:
        return "paused: no new marks"
    if policy.mode == Mode.OBSERVE and not policy.modes:
        return "observe mode: no marks"
    topologies = ", ".join(policy.diagnosis.enforce)
    return f"as in the file; degraded domains of {topologies} are marked" if topologies else "as in the file"


def _shared_faults(result: SimulationResult) -> str:
    if not result.shared_faults:
        return "none"
    times = ""
    median, slowest = result.diagnosis_seconds_p50, result.diagnosis_seconds_p95
    if median is not None and slowest is not None:
        times = (
            f" after {format_duration(round(median))} (median), "
            f"{format_duration(round(slowest))} (95th percentile)"
        )
    intervals, precision = result.intervals, result.diagnosis_precision
    recall = (
        f"{result.diagnosed_shared_faults} of {result.shared_faults}{_interval(intervals.diagnosis_recall)}"
    )
    correct = (
        "" if precision is None else f"; precision {precision:.1%}{_interval(intervals.diagnosis_precision)}"
    )
    return f"{recall} diagnosed{times}{correct}"


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f" [{low:.0%} to {high:.0%}]"


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    _require_applicable(options)
    catalogue, signals = load_catalogue(options.checks)
    policy = load_policy(options.policy, catalogue) if options.policy else None
    simulated = policy or enforce_all(default_policy(catalogue.fault_classes))
    agent = SimulatedAgent(catalogue, signals)
    if options.scenario:
        names = list(SCENARIOS) if options.scenario == "all" else [options.scenario]
        with elapsed("simulating"):
            runs = [run_scenario(agent, name, simulated, options.seed) for name in names]
        print_output(document_or_text(runs, options.output, lambda: format_view(scenarios_view(runs))))
        return OK
    settings = SimulationSettings(options.nodes or _NODES, options.days or _DAYS, options.seed)
    with elapsed("simulating"):
        result = simulate(agent, simulated, settings)
    print_output(
        document_or_text(result, options.output, lambda: format_view(result_view(result, policy), PLAIN))
    )
    return OK


def _require_applicable(options: Namespace) -> None:
    """Raise UsageError for an option that its mode does not have."""
    if options.scenario:
        for name in ("nodes", "days"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name}: a scenario has its own: omit it, or omit --scenario")


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard simulate",
        description="Simulate a fleet under a policy in virtual time. The checks and the decisions are "
        "those of a real fleet.",
        examples=("nodeguard simulate --nodes 1000 --days 30 --policy policy.yaml",),
        epilog="Exit codes: 0 success, 3 usage error.",
    )
    add = parser.add_argument
    add("--nodes", metavar="N", type=whole_number(1, _MAX_NODES), help=f"number of nodes ({_NODES})")
    add("--days", metavar="D", type=_days, help=f"days to simulate ({_DAYS:g})")
    add("--seed", metavar="N", type=whole_number(0, 2**31), default=1, help="random seed (1)")
    add("--policy", metavar="FILE", help="policy file (default: enforce all marks)")
    add("--scenario", metavar="NAME", choices=("all", *SCENARIOS),
        help=f"a hard history instead of random faults: {', '.join(SCENARIOS)}, or all")  # fmt: skip
    add_checks(parser)
    add_output(parser, "text", "json", "yaml")
    return parser


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0.0 < days <= _MAX_DAYS:
        raise ArgumentTypeError(
            f"'{text}' is invalid: expected a number of days above 0 and up to {_MAX_DAYS}, such as 0.5 or 30"
        )
    return days
