"""nodeguard check: judge this machine, or a recorded one, once."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import NamedTuple

from nodeguard.agent.judgement import Judgement
from nodeguard.cli.knowledge import families, knowledge
from nodeguard.cli.options import (
    add_checks,
    add_machine,
    add_only,
    folder,
    hear_instance_type,
    hold_platform,
)
from nodeguard.cli.scope import why_nothing, within
from nodeguard.cli.streams import say
from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING, Parser, UsageError, duration
from nodeguard.derive.derive import Site
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.sources.every import every_source
from nodeguard.sources.source import Source


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    if options.schema:
        from nodeguard.cli.output import schema  # noqa: PLC0415 - rarely asked for

        say(schema())
        return OK
    catalogue, signals = knowledge(options.checks)
    only = families(catalogue, options.only)
    checks = [check for check in catalogue.checks if only is None or check.family in only]
    task = _Task(options, catalogue, signals, only, every_source(catalogue.patterns))
    told = _live(task) if options.bundle is None else _recorded(task)
    if only is not None:
        told = told._replace(verdict=within(told.verdict, checks, task.sources))
    code = exit_code(told.verdict, strict=options.strict)
    unexplained = told.verdict.judged or told.verdict.unread or only is None
    _print(options, told, code, "" if unexplained else why_nothing(only or (), checks))
    return code


class _Task(NamedTuple):
    """What is to be judged, and by what. only: families, None for all."""

    options: Namespace
    catalogue: Catalogue
    signals: dict[str, Signal]
    only: frozenset[str] | None
    sources: tuple[Source, ...]

    def judgement(self, site: Site) -> Judgement:
        """A judgement of a node of which the site says so much. Raises UsageError."""
        hold_platform(self.catalogue, site.platform)
        hear_instance_type(self.catalogue, self.options)
        return Judgement(self.catalogue, self.signals, site, self.only, one_look=True)


class _Told(NamedTuple):
    """A verdict of a moment, and the name of the node that it is about."""

    hostname: str
    verdict: Verdict
    instant: Instant


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


def _recorded(task: _Task) -> _Told:
    from nodeguard.agent.replay import replayed  # noqa: PLC0415 - a live check wants no recordings
    from nodeguard.bundle.defect import BundleError  # noqa: PLC0415
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415

    options = task.options
    if options.seconds is not None:
        raise UsageError("--for is for a live machine: a recording is judged to its end")
    try:
        recording = Recording.open(options.bundle)
    except BundleError as error:
        raise UsageError(str(error)) from None
    manifest = recording.manifest
    site = Site(options.platform or manifest.platform, options.instance_type or manifest.instance_type)
    *_, (at, verdict) = replayed(recording, task.sources, task.judgement(site))
    return _Told(manifest.hostname, verdict, recording.at(at).instant)


def _live(task: _Task) -> _Told:
    from nodeguard.agent.look import look  # noqa: PLC0415 - a replay wants no threads
    from nodeguard.cli.progress import progress  # noqa: PLC0415
    from nodeguard.sources.live import LiveMachine  # noqa: PLC0415

    options = task.options
    judgement = task.judgement(Site(options.platform, options.instance_type))
    with LiveMachine() as machine, progress("looking", options.seconds or 0.0):
        verdict = look(machine, task.sources, judgement, options.seconds or 0.0, options.timeout)
        return _Told(os.uname().nodename, verdict, machine.now())


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Exit code of a verdict. strict: whether what could not be read counts, where nothing is fatal."""
    if verdict.health == Health.FATAL:
        return FATAL
    if not verdict.judged or (strict and verdict.unread):
        return UNKNOWN
    return OK if verdict.health == Health.OK else WARNING


def _print(options: Namespace, told: _Told, code: int, nothing: str) -> None:
    match options.format:
        case "json":
            from nodeguard.cli.output import as_json  # noqa: PLC0415 - one format of three

            say(as_json(*told))
        case "prometheus":
            from nodeguard.cli.prometheus import as_metrics  # noqa: PLC0415

            say(as_metrics(told.verdict, told.instant), end="")
        case _:
            if options.quiet and code == OK:
                return
            from nodeguard.cli.page import show  # noqa: PLC0415
            from nodeguard.cli.table import table  # noqa: PLC0415

            show(table(*told, quiet=options.quiet, nothing=nothing))
