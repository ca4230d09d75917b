"""nodeguard check: judge this machine, or a recorded one, once."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.check_catalogue import load_catalogue, parse_families
from nodeguard.cli.options import add_checks, add_machine, add_only, directory
from nodeguard.cli.scope import reason_not_evaluated, restrict_verdict
from nodeguard.cli.streams import print_output
from nodeguard.cli.task import Task, Told, live, recorded
from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING, ArgumentParser, duration
from nodeguard.model.finding import Health, Verdict
from nodeguard.sources.registry import all_sources


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    if options.schema:
        from nodeguard.cli.render.verdict_json import schema  # noqa: PLC0415 - rarely asked for

        print_output(schema())
        return OK
    catalogue, signals = load_catalogue(options.checks)
    only = parse_families(catalogue, options.only)
    checks = [check for check in catalogue.checks if only is None or check.family in only]
    task = Task(options, catalogue, signals, only, all_sources(catalogue.patterns))
    told = live(task) if options.bundle is None else recorded(task)
    if only is not None:
        told = told._replace(verdict=restrict_verdict(told.verdict, checks, task.sources))
    code = exit_code(told.verdict, strict=options.strict)
    unexplained = told.verdict.evaluated or told.verdict.read_failures or only is None
    _print(task, told, code, "" if unexplained else reason_not_evaluated(only or (), checks))
    return code


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard check",
        description="Judges this machine, or a recorded one, and says what is wrong and what to do.",
        epilog="Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage error or nothing could be judged.",
    )
    add = parser.add_argument
    add(
        "--from",
        dest="bundle",
        metavar="DIR",
        type=directory,
        help="judge a recording instead of this machine",
    )
    add(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=duration,
        help="look for so long (30s, 5m), not just once",
    )
    add_only(parser)
    add_checks(parser)
    add_machine(parser)
    add("--format", choices=("table", "json", "prometheus"), default="table", help="how to say it")
    add("--quiet", action="store_true", help="a table of what is wrong alone, none where nothing is")
    add("--strict", action="store_true", help="exit with 3 where something could not be read")
    add("--schema", action="store_true", help="print the JSON schema of --format json")
    return parser


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Exit code of a verdict. strict: whether what could not be read counts, where nothing is fatal."""
    if verdict.health == Health.FATAL:
        return FATAL
    if not verdict.evaluated or (strict and verdict.read_failures):
        return UNKNOWN
    return OK if verdict.health == Health.OK else WARNING


def _print(task: Task, told: Told, code: int, nothing: str) -> None:
    options = task.options
    match options.format:
        case "json":
            from nodeguard.cli.render.verdict_json import as_json  # noqa: PLC0415 - one format of three

            print_output(as_json(*told))
        case "prometheus":
            from nodeguard.cli.render.verdict_metrics import as_metrics  # noqa: PLC0415

            print_output(as_metrics(told.verdict, told.instant), end="")
        case _:
            if options.quiet and code == OK:
                return
            from nodeguard.cli.render.check_text import meanings  # noqa: PLC0415
            from nodeguard.cli.render.terminal import print_lines  # noqa: PLC0415
            from nodeguard.cli.render.verdict import verdict_lines  # noqa: PLC0415

            words = meanings(task.catalogue)
            print_lines(verdict_lines(*told, words, quiet=options.quiet, nothing=nothing))
