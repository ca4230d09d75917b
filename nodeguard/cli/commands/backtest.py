"""nodeguard backtest: what a policy would have marked, by a history or by recordings."""

from __future__ import annotations

import heapq
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nodeguard.backtest.backtest import BacktestResult, run_backtest
from nodeguard.cli.aggregator_client import add_format
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks, validate_platform
from nodeguard.cli.render.terminal import print_lines, terminal_width
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.timestamps import format_time
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet.state.history_events import HistoryEvent, in_time_order
from nodeguard.judge.formatting import format_duration
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Health
from nodeguard.model.policy import Policy
from nodeguard.model.signal import Signal
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.registry import all_sources

# Policies that are held against each other, and seconds that --since may say: ten years.
_POLICIES = 2
_LONGEST = 3650 * 86_400

# The file that makes a directory a bundle.
_BUNDLE = "bundle.yaml"


class _Source(NamedTuple):
    """What was told. until: when whoever listened did so last, 0 where that is not known."""

    steps: Iterator[HistoryEvent]
    until: float


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    if len(options.policy) > _POLICIES:
        raise UsageError(f"{len(options.policy)} policies: name one, or two to hold against each other")
    catalogue, signals = load_catalogue(options.checks)
    checks = {check.id: check.health for check in catalogue.checks}
    policies = [_policy(file, checks) for file in options.policy]
    sources = _sources(options.source, catalogue, signals)
    since = time.time() - options.since if options.since else 0.0
    found = _tested(sources, policies, list(checks), since)
    _has_anything(found, options)
    if options.format == "json":
        from nodeguard.cli.render.backtest_json import as_json  # noqa: PLC0415 - one format of two

        print_output(as_json(options.policy, found))
    else:
        from nodeguard.cli.render.backtest import backtest_lines  # noqa: PLC0415

        print_lines(backtest_lines(options.policy, policies, found, terminal_width(), everything=options.all))
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard backtest",
        description="Plays what nodes told through a policy again, and says what it would have marked.",
        epilog="Nothing is asked of a cluster, and nothing is written.",
    )
    add = parser.add_argument
    add("source", metavar="HISTORY|BUNDLE", nargs="+",
        help="what aggregator --history wrote, on each replica; or recordings, each of a node")  # fmt: skip
    add("--policy", metavar="FILE", action="append", required=True,
        help="the policy; a second one is held against it")  # fmt: skip
    add("--since", metavar="TIME", type=lambda text: duration(text, _LONGEST), default=0.0,
        help="tell of so long until now (30d); else of all")  # fmt: skip
    add("--all", action="store_true", help="every mark, not the latest alone")
    add_checks(parser)
    add_format(parser)
    return parser


def _policy(file: str, checks: Mapping[str, Health]) -> Policy:
    """Raises UsageError, in the words of nodeguard policy check."""
    from nodeguard.aggregator.policy.policy_file import read_policy  # noqa: PLC0415 - brings what only files of YAML need
    from nodeguard.config.yaml_document import ConfigError  # noqa: PLC0415

    try:
        policy, doubts = read_policy(Path(file), checks, time.time())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    for doubt in doubts:
        print_error(str(doubt))
    return policy


def _tested(
    sources: Sequence[_Source], policies: Sequence[Policy], checks: Sequence[str], since: float
) -> BacktestResult:
    from nodeguard.aggregator.history.reader import HistoryError, merge_histories  # noqa: PLC0415 - brings SQLite

    steps = merge_histories([one.steps for one in sources])
    try:
        return run_backtest(steps, policies, checks, since, max(one.until for one in sources))
    except HistoryError as error:
        raise UsageError(str(error)) from None


def _sources(named: Sequence[str], catalogue: Catalogue, signals: Mapping[str, Signal]) -> list[_Source]:
    """Raises UsageError."""
    bundles = [path for path in named if os.path.isfile(os.path.join(path, _BUNDLE))]
    names: dict[str, str] = {}
    for path in bundles:
        name = os.path.basename(os.path.abspath(path))
        if name in names:
            raise UsageError(f"{names[name]} and {path} are both called {name}, as their node is: rename one")
        names[name] = path
    recorded = [_recorded(name, path, catalogue, signals) for name, path in names.items()]
    found = [_history(path) for path in named if path not in bundles]
    if recorded:
        found.append(_Source(heapq.merge(*recorded, key=lambda step: step.at), 0.0))
    return found


def _history(path: str) -> _Source:
    from nodeguard.aggregator.history.reader import HistoryError, read_history  # noqa: PLC0415 - brings SQLite

    try:
        return _Source(*read_history(path))
    except HistoryError as error:
        raise UsageError(str(error)) from None


def _recorded(
    name: str, path: str, catalogue: Catalogue, signals: Mapping[str, Signal]
) -> Iterator[HistoryEvent]:
    from nodeguard.backtest.recordings import recording_steps  # noqa: PLC0415 - a history wants no recordings
    from nodeguard.bundle.defect import BundleError  # noqa: PLC0415
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415

    try:
        recording = Recording.open(path)
    except BundleError as error:
        raise UsageError(str(error)) from None
    manifest = recording.manifest
    validate_platform(catalogue, manifest.platform, f"{path}: platform")
    site = PlatformHints(manifest.platform, manifest.instance_type)
    judgement = Pipeline(catalogue, signals, site, one_shot=not recording.end)
    return in_time_order(
        recording_steps(name, recording, all_sources(catalogue.patterns), judgement, catalogue)
    )


def _has_anything(found: BacktestResult, options: Namespace) -> None:
    """Raises UsageError where there is nothing to tell of."""
    if not found.reports:
        raise UsageError(
            f"{', '.join(options.source)}: no agent has told anything there: wait, or name another"
        )
    if not found.recent_reports:
        raise UsageError(
            f"--since: nothing was told within {format_duration(options.since)}, the latest at {format_time(found.last_step)}: "
            "say a longer time, or leave it away"
        )
