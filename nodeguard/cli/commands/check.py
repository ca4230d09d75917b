"""nodeguard check: judge this machine, or a recorded one, once."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.knowledge import families, knowledge
from nodeguard.cli.options import add_checks, add_machine, add_only, folder
from nodeguard.cli.scope import why_nothing, within
from nodeguard.cli.streams import say
from nodeguard.cli.task import Task, Told, live, recorded
from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING, Parser, duration
from nodeguard.model.finding import Health, Verdict
from nodeguard.sources.every import every_source


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    if options.schema:
        from nodeguard.cli.render.output import schema  # noqa: PLC0415 - rarely asked for

        say(schema())
        return OK
    catalogue, signals = knowledge(options.checks)
    only = families(catalogue, options.only)
    checks = [check for check in catalogue.checks if only is None or check.family in only]
    task = Task(options, catalogue, signals, only, every_source(catalogue.patterns))
    told = live(task) if options.bundle is None else recorded(task)
    if only is not None:
        told = told._replace(verdict=within(told.verdict, checks, task.sources))
    code = exit_code(told.verdict, strict=options.strict)
    unexplained = told.verdict.judged or told.verdict.unread or only is None
    _print(task, told, code, "" if unexplained else why_nothing(only or (), checks))
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="nodeguard check",
        description="Judges this machine, or a recorded one, and says what is wrong and what to do.",
        epilog="Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage error or nothing could be judged.",
    )
    add = parser.add_argument
    add("--from", dest="bundle", metavar="DIR", type=folder, help="judge a recording instead of this machine")
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
    if not verdict.judged or (strict and verdict.unread):
        return UNKNOWN
    return OK if verdict.health == Health.OK else WARNING


def _print(task: Task, told: Told, code: int, nothing: str) -> None:
    options = task.options
    match options.format:
        case "json":
            from nodeguard.cli.render.output import as_json  # noqa: PLC0415 - one format of three

            say(as_json(*told))
        case "prometheus":
            from nodeguard.cli.render.prometheus import as_metrics  # noqa: PLC0415

            say(as_metrics(told.verdict, told.instant), end="")
        case _:
            if options.quiet and code == OK:
                return
            from nodeguard.cli.render.page import show  # noqa: PLC0415
            from nodeguard.cli.render.verdict import table  # noqa: PLC0415
            from nodeguard.cli.render.wording import meanings  # noqa: PLC0415

            words = meanings(task.catalogue)
            show(table(*told, words, quiet=options.quiet, nothing=nothing))
