"""nodeguard policy: check the aggregator's policy file, and print its schema or an example."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks
from nodeguard.cli.render.policy import enforced_checks, policy_lines
from nodeguard.cli.render.terminal import print_lines
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, WARNING, ArgumentParser, UsageError
from nodeguard.fleet.budget_limits import fleet_limits
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy


class DoubtOutput(Struct, frozen=True):
    """What is doubtful about a file. line: from 1."""

    line: int
    field: str
    problem: str
    remedy: str


class NodesOutput(Struct, frozen=True):
    """The budgets as nodes. fleet: that may be marked; reserve: those of them that are kept for quarantine;
    suspect: that may be suspect. apart: whether suspect and quarantined nodes are counted apart, so that
    `fleet` nodes can be quarantined beside the suspect ones. degraded, first: nodes in degraded domains, and
    in a single one.
    """

    fleet: int
    reserve: int
    suspect: int
    apart: bool
    degraded: int
    first: int


class PolicyOutput(Struct, frozen=True):
    """What nodeguard policy check --format json prints.

    policy: times in seconds, shares from 0 to 1. enforced: checks that set a mark, by mark. nodes: with
    --nodes alone.
    """

    version: Literal[1]
    file: str
    policy: Policy
    enforced: dict[Mark, list[str]]
    warnings: list[DoubtOutput]
    nodes: NodesOutput | None


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError for a file that is wrong."""
    options = _parser().parse_args(arguments)
    match options.what:
        case "schema":
            from nodeguard.aggregator.policy.schema import json_schema  # noqa: PLC0415 - one of three

            print_output(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode())
        case "example":
            print_output(
                files("nodeguard.aggregator.policy").joinpath("example.yaml").read_text("utf-8"), end=""
            )
        case _:
            return _check(options)
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard policy", description="What the aggregator may mark, how much of it."
    )
    parts = parser.add_subparsers(dest="what", metavar="check | schema | example", required=True)
    check = parts.add_parser(
        "check",
        help="say what a policy file comes to",
        description="Checks a policy file, and says what it comes to.",
        epilog="Exit codes: 0 ok, 1 ok with warnings, 3 usage error or a file that is wrong.",
    )
    check.add_argument("file", metavar="FILE", help="the policy file")
    add_checks(check)
    check.add_argument("--nodes", metavar="N", type=_count, help="say budgets as nodes of a fleet of so many")
    check.add_argument("--format", choices=("text", "json"), default="text", help="how to say it")
    for name, about in (
        ("schema", "print the JSON Schema of the file, for editors"),
        ("example", "print a policy file with the defaults, explained"),
    ):
        parts.add_parser(name, help=about, description=f"{about.capitalize()}.")
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= 1_000_000 or len(text) > 7:
        raise ArgumentTypeError(f"'{text}' is no number of nodes: write one from 1 to 1000000")
    return int(text)


def _check(options: Namespace) -> int:
    from nodeguard.aggregator.policy.policy_file import read_policy  # noqa: PLC0415 - brings what only files of YAML need
    from nodeguard.config.yaml_document import ConfigError  # noqa: PLC0415

    catalogue, _ = load_catalogue(options.checks)
    checks = {check.id: check.health for check in catalogue.checks}
    try:
        policy, doubts = read_policy(Path(options.file), checks, time.time())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if options.format == "json":
        output = PolicyOutput(
            version=1,
            file=options.file,
            policy=policy,
            enforced=enforced_checks(policy, checks),
            warnings=[DoubtOutput(one.line, one.field, one.problem, one.remedy) for one in doubts],
            nodes=nodes_output(policy, options.nodes),
        )
        print_output(msgspec.json.format(msgspec.json.encode(output), indent=2).decode())
    else:
        print_lines(list(policy_lines(options.file, policy, checks, doubts, options.nodes)))
    return WARNING if doubts else OK


def nodes_output(policy: Policy, count: int | None) -> NodesOutput | None:
    """Return the budgets of a fleet of `count` nodes; None where no count is given."""
    if count is None:
        return None
    limits = fleet_limits(policy.budget, count)
    fleet = limits.fleet
    return NodesOutput(
        fleet=fleet.nodes,
        reserve=fleet.reserve,
        suspect=limits.suspect,
        apart=fleet.separate,
        degraded=limits.degraded,
        first=limits.first,
    )
