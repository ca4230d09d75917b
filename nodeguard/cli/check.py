"""nodeguard check: judge this machine, or a recorded one, once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodeguard.agent.judgement import Judgement
from nodeguard.cli.knowledge import families, knowledge
from nodeguard.cli.streams import say
from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING, Parser, UsageError, duration
from nodeguard.derive.derive import Site
from nodeguard.model.finding import Health, Verdict
from nodeguard.model.instant import Instant
from nodeguard.sources.every import every_source

if TYPE_CHECKING:
    from argparse import Namespace

    from nodeguard.sources.source import Source


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    if options.schema:
        from nodeguard.cli.output import schema  # noqa: PLC0415 - rarely asked for

        say(schema())
        return OK
    hostname, verdict, instant = _recorded(options) if options.bundle else _live(options)
    code = exit_code(verdict, strict=options.strict)
    _print(options, hostname, verdict, instant, code)
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="nodeguard check",
        description="Judges this machine, or a recorded one, and says what is wrong and what to do.",
        epilog="Exit codes: 0 ok, 1 warning or suspect, 2 fatal, 3 usage error or nothing could be judged.",
    )
    add = parser.add_argument
    add("--from", dest="bundle", metavar="DIR", help="judge a recording instead of this machine")
    add(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=duration,
        help="look for so long (30s, 5m), not just once",
    )
    add("--only", metavar="FAMILY,…", default="", help="judge these families of checks alone")
    add(
        "--checks", metavar="DIR", action="append", default=[], help="add or override checks from this folder"
    )
    add("--platform", metavar="ID", default="", help="what this machine is, where it cannot be recognised")
    add("--instance-type", metavar="TYPE", default="", help="what the cloud calls this machine")
    add("--format", choices=("table", "json", "prometheus"), default="table", help="how to say it")
    add("--quiet", action="store_true", help="say only what is wrong: nothing where nothing is")
    add("--strict", action="store_true", help="exit with 3 where something could not be read")
    add("--timeout", metavar="TIME", type=duration, default=60.0, help="wait no longer for any source (60s)")
    add("--schema", action="store_true", help="print the JSON schema of --format json")
    return parser


def _judgement(options: Namespace, site: Site) -> tuple[Judgement, tuple[Source, ...]]:
    catalogue, signals = knowledge(options.checks)
    if site.platform and site.platform not in {platform.id for platform in catalogue.platforms}:
        names = ", ".join(sorted(platform.id for platform in catalogue.platforms))
        raise UsageError(f"platform '{site.platform}' is not known: it is one of {names}")
    only = families(catalogue, options.only)
    return Judgement(catalogue, signals, site, only, one_look=True), every_source(catalogue.patterns)


def _recorded(options: Namespace) -> tuple[str, Verdict, Instant]:
    from nodeguard.agent.replay import replayed  # noqa: PLC0415 - a live check wants no recordings
    from nodeguard.bundle.defect import BundleError  # noqa: PLC0415
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415

    if options.seconds is not None:
        raise UsageError("--for is for a live machine: a recording is judged to its end")
    try:
        recording = Recording.open(options.bundle)
    except BundleError as error:
        raise UsageError(str(error)) from None
    manifest = recording.manifest
    site = Site(options.platform or manifest.platform, options.instance_type or manifest.instance_type)
    judgement, sources = _judgement(options, site)
    *_, (at, verdict) = replayed(recording, sources, judgement)
    return manifest.hostname, verdict, recording.at(at).instant


def _live(options: Namespace) -> tuple[str, Verdict, Instant]:
    from nodeguard.agent.look import look  # noqa: PLC0415 - a replay wants no threads
    from nodeguard.sources.live import LiveMachine  # noqa: PLC0415

    judgement, sources = _judgement(options, Site(options.platform, options.instance_type))
    with LiveMachine() as machine:
        verdict = look(machine, sources, judgement, options.seconds or 0.0, options.timeout)
        return os.uname().nodename, verdict, machine.now()


def exit_code(verdict: Verdict, *, strict: bool) -> int:
    """Exit code of a verdict. strict: whether what could not be read counts, where nothing is fatal."""
    if verdict.health == Health.FATAL:
        return FATAL
    if not verdict.judged or (strict and verdict.unread):
        return UNKNOWN
    return OK if verdict.health == Health.OK else WARNING


def _print(options: Namespace, hostname: str, verdict: Verdict, instant: Instant, code: int) -> None:
    if options.quiet and code == OK:
        return
    match options.format:
        case "json":
            from nodeguard.cli.output import as_json  # noqa: PLC0415 - one format of three

            say(as_json(hostname, verdict, instant))
        case "prometheus":
            from nodeguard.cli.prometheus import as_metrics  # noqa: PLC0415

            say(as_metrics(verdict, instant), end="")
        case _:
            from nodeguard.cli.page import show  # noqa: PLC0415
            from nodeguard.cli.table import table  # noqa: PLC0415

            show(table(hostname, verdict, instant, quiet=options.quiet))
