"""nodeguard policy: validation of a policy file, its schema, and an example."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from msgspec import Struct

from nodeguard.cli.check_catalogue import STDIN, load_catalogue
from nodeguard.cli.commands.backtest import replay, replay_text
from nodeguard.cli.options import add_checks, add_output, load_policy
from nodeguard.cli.render.backtest_json import BacktestOutput, as_output
from nodeguard.cli.render.policy import enforced_checks, policy_view
from nodeguard.cli.render.terminal import PLAIN, format_view
from nodeguard.cli.streams import document_or_text, print_output, to_json
from nodeguard.cli.usage import OK, WARNING, ArgumentParser, UsageError, whole_number
from nodeguard.fleet.budget_limits import fleet_limits
from nodeguard.fleet.policy_rules import drained_checks
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Policy


class WarningOutput(Struct, frozen=True):
    """A warning about a policy file. line: from 1."""

    line: int
    field: str
    problem: str
    remedy: str


class NodesOutput(Struct, frozen=True):
    """Budgets in nodes. fleet: marked nodes; reserve: part of these for quarantine only; suspect: suspect
    nodes. apart: whether suspect and quarantined nodes are counted separately, so that `fleet` nodes can be
    quarantined besides the suspect ones. degraded, first: nodes in degraded domains, and in a single one.
    """

    fleet: int
    reserve: int
    suspect: int
    apart: bool
    degraded: int
    first: int


class PolicyOutput(Struct, frozen=True):
    """Output of nodeguard policy check -o json.

    policy: with the keys of the file; times in seconds, shares from 0 to 1. enforced: checks that set a mark,
    by mark. drained: checks for which pods are evicted, or would be in a dry run. nodes: only with --nodes.
    against: only with --against, as of nodeguard backtest -o json.
    """

    version: Literal[1]
    file: str
    policy: Policy
    enforced: dict[Mark, list[str]]
    drained: list[str]
    warnings: list[WarningOutput]
    nodes: NodesOutput | None
    against: BacktestOutput | None


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError for an invalid file."""
    match options.verb:
        case "schema":
            from nodeguard.aggregator.policy.schema import json_schema  # noqa: PLC0415 - one of three

            print_output(to_json(json_schema()))
        case "example":
            text = files("nodeguard.aggregator.policy").joinpath("example.yaml").read_text("utf-8")
            print_output(text, end="")
        case _:
            return _check(options)
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard policy",
        description="Validate a policy file: what the aggregator may mark, and how much of it.",
        examples=(
            "nodeguard policy example > policy.yaml",
            "nodeguard policy schema > policy.schema.json",
            "nodeguard policy check policy.yaml",
            "nodeguard policy check next.yaml --current policy.yaml --against history.sqlite",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="check | schema | example", required=True)
    check = verbs.add_parser(
        "check",
        help="validate a policy file and show its effect",
        description="Validate a policy file, and show its effect.",
        epilog="Exit codes: 0 valid, 1 valid with warnings, 3 usage error or invalid file.",
    )
    check.add_argument(
        "--fail-on",
        choices=("warning", "unmatched"),
        default="warning",
        help="unmatched: refuse checks and patterns that match nothing, and accept other warnings",
    )
    check.add_argument("file", metavar="FILE", help="the policy file; - for standard input")
    add_checks(check)
    check.add_argument(
        "--nodes",
        metavar="N",
        type=whole_number(1, 1_000_000),
        help="show budgets as nodes of a fleet of N nodes",
    )
    check.add_argument(
        "--against",
        metavar="HISTORY",
        action="append",
        default=[],
        help="also show what it would have marked in this history or recording, as nodeguard backtest does "
        "(repeatable)",
    )
    check.add_argument(
        "--current",
        metavar="FILE",
        default="",
        help="with --against: the policy in use, to show the difference",
    )
    add_output(check, "text", "json", "yaml")
    for name, about in (
        ("schema", "print the JSON Schema of the file, for editors"),
        ("example", "print a policy file with all defaults and explanations"),
    ):
        verbs.add_parser(name, help=about, description=f"{about.capitalize()}.")
    return parser


def _check(options: Namespace) -> int:
    from nodeguard.aggregator.policy.lint import unmatched_patterns  # noqa: PLC0415 - one of three
    from nodeguard.aggregator.policy.policy_file import policy_errors, read_policy  # noqa: PLC0415 - needs YAML
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415

    if options.current and not options.against:
        raise UsageError("--current is for --against only: add --against, or remove --current")
    catalogue, signals = load_catalogue(options.checks)
    checks = {check.id: check.health for check in catalogue.checks}
    with TemporaryDirectory(prefix="nodeguard-") if options.file == STDIN else nullcontext("") as scratch:
        path = Path(scratch, "policy.yaml") if scratch else Path(options.file)
        if scratch and not path.write_bytes(sys.stdin.buffer.read()):
            raise UsageError("standard input is empty: send the policy to it, in a pod by `kubectl exec -i`")
        try:
            policy, warnings = read_policy(path, checks, time.time(), catalogue.fault_classes)
        except ConfigError:
            errors = "\n".join(map(str, policy_errors(path, catalogue.fault_classes)))
            raise UsageError(errors.replace(str(path), "standard input") if scratch else errors) from None
    name = "standard input" if options.file == STDIN else options.file
    if options.fail_on == "unmatched":
        rows = list(unmatched_patterns(policy, checks))
        places = {(*place, "check") for place, _, _ in rows} | {
            (*place, "checks", at) for place, at, _ in rows
        }
        if unmatched := [str(warning) for warning in warnings if warning.path in places]:
            text = "\n".join(unmatched)
            raise UsageError(text.replace(str(path), name))
    files, policies = [name], [policy]
    if options.current:
        files, policies = [options.current, name], [load_policy(options.current, catalogue), policy]
    result = replay(options.against, policies, catalogue, signals) if options.against else None
    output = PolicyOutput(
        version=1,
        file=options.file,
        policy=policy,
        enforced=enforced_checks(policy, checks),
        drained=drained_checks(policy, checks),
        warnings=[
            WarningOutput(warning.line, warning.field, warning.problem, warning.remedy)
            for warning in warnings
        ],
        nodes=nodes_output(policy, options.nodes),
        against=as_output(files, result) if result is not None else None,
    )
    text = format_view(policy_view(name, policy, checks, warnings, options.nodes), PLAIN)
    if result is not None:
        text += f"\n\n{replay_text(files, policies, result)}"
    print_output(document_or_text(output, options.output, lambda: text))
    return WARNING if warnings and options.fail_on == "warning" else OK


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
