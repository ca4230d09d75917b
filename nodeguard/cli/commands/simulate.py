"""nodeguard simulate: the effect of a policy on a simulated fleet, in virtual time."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks
from nodeguard.cli.render.terminal import print_lines
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.policy import Policy, default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.simulation import SimulationSettings, enforce_all, simulate

_MAX_NODES, _MAX_DAYS = 100_000, 365


SUMMARY = "simulate the effect of a policy on a fleet"
GROUP = "Checks and policy"


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    catalogue, signals = load_catalogue(options.checks)
    policy = _policy(options.policy, catalogue)
    settings = SimulationSettings(options.nodes, options.days, options.seed)
    result = simulate(
        SimulatedAgent(catalogue, signals),
        policy or enforce_all(default_policy(catalogue.fault_classes)),
        settings,
    )
    if options.format == "json":
        print_output(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        from nodeguard.cli.render.simulate import result_page  # noqa: PLC0415 - one of two formats

        print_lines(result_page(result, policy))
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard simulate",
        description="simulate a fleet under a policy, with the real judge and planner, in virtual time",
        epilog="Exit codes: 0 success, 3 usage error.",
    )
    add = parser.add_argument
    add("--nodes", metavar="N", type=_nodes, default=7500, help="number of nodes (7500)")
    add("--days", metavar="D", type=_days, default=30.0, help="days to simulate (30)")
    add("--seed", metavar="N", type=int, default=1, help="random seed (1)")
    add("--policy", metavar="FILE", help="policy file (default: enforce all marks)")
    add_checks(parser)
    add("--format", choices=("text", "json"), default="text", help="output format")
    return parser


def _nodes(text: str) -> int:
    nodes = int(text[:7]) if text.isascii() and text.isdigit() else 0
    if not 0 < nodes <= _MAX_NODES:
        raise ArgumentTypeError(f"'{text}' is invalid: expected a number from 1 to {_MAX_NODES}")
    return nodes


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0.0 < days <= _MAX_DAYS:
        raise ArgumentTypeError(
            f"'{text}' is invalid: expected a number of days up to {_MAX_DAYS}, such as 0.5 or 30"
        )
    return days


def _policy(file: str | None, catalogue: Catalogue) -> Policy | None:
    if file is None:
        return None
    from nodeguard.aggregator.policy.policy_file import read_policy  # noqa: PLC0415 - brings what only files of YAML need
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415

    try:
        checks = {check.id: check.health for check in catalogue.checks}
        policy, warnings = read_policy(Path(file), checks, time.time(), catalogue.fault_classes)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    for warning in warnings:
        print_error(f"nodeguard simulate: {warning}")
    return policy
