"""nodeguard backtest: the marks that a policy would have set, from a history or from recordings."""

from __future__ import annotations

import heapq
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nodeguard.backtest.backtest import BacktestResult, run_backtest
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_checks, add_output, load_policy, validate_platform
from nodeguard.cli.progress import elapsed
from nodeguard.cli.render.terminal import format_lines, format_time, terminal_width
from nodeguard.cli.streams import as_document, print_error, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet.state.history_events import HistoryEvent, in_time_order
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.judge.formatting import format_duration
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.policy import Policy
from nodeguard.model.signal import Signal
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.registry import all_sources

# Policies to compare, and the longest --since in seconds: ten years.
_POLICIES = 2
_LONGEST = 3650 * 86_400

# Seconds that a clock of another machine may be ahead of this one.
_CLOCK_DIFFERENCE = 300.0

# The file that makes a directory a bundle.
_BUNDLE = "bundle.yaml"


class _Source(NamedTuple):
    """Reports to replay. until: time of the last one that was received, 0 where that is not known. path: of a
    history. future: times of its rows that are in the future, added while the steps are read.
    """

    steps: Iterator[HistoryEvent]
    until: float
    path: str = ""
    future: Sequence[float] = ()


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UserError."""
    if len(options.policy) > _POLICIES:
        raise UsageError(f"{len(options.policy)} policies: expected one, or two to compare")
    catalogue, signals = load_catalogue(options.checks)
    policies = [load_policy(file, catalogue) for file in options.policy]
    result = replay(options.source, policies, catalogue, signals, options.since)
    if options.output == "text":
        print_output(replay_text(options.policy, policies, result, everything=options.all))
    else:
        from nodeguard.cli.render.backtest_json import as_output  # noqa: PLC0415 - one format of two

        print_output(as_document(as_output(options.policy, result), options.output))
    return OK


def replay(
    paths: Sequence[str],
    policies: Sequence[Policy],
    catalogue: Catalogue,
    signals: Mapping[str, Signal],
    seconds: float = 0.0,
) -> BacktestResult:
    """Return the marks that policies would have set. Raises UsageError.

    paths: of histories and recordings. seconds: of the time range, back from now; 0 for all.
    """
    from nodeguard.aggregator.history.reader import merge_histories  # noqa: PLC0415 - brings SQLite

    with elapsed("replaying"):
        sources = _sources(paths, catalogue, signals)
        since = time.time() - seconds if seconds else 0.0
        steps = merge_histories([source.steps for source in sources])
        until = max(source.until for source in sources)
        result = run_backtest(steps, policies, [check.id for check in catalogue.checks], since, until)
    for source in sources:
        if source.future:
            rows = count_noun(len(source.future), "row")
            print_error(
                f"{source.path}: {rows} with a time in the future, replayed at the time of the row before: "
                "check the clocks of the aggregators"
            )
    _require_reports(result, paths, seconds)
    return result


def replay_text(
    files: Sequence[str], policies: Sequence[Policy], result: BacktestResult, *, everything: bool = False
) -> str:
    """Return the view of a result. files: of the policies. everything: all marks, not only the latest."""
    from nodeguard.cli.render.backtest import backtest_lines  # noqa: PLC0415 - one format of two

    return format_lines(backtest_lines(files, policies, result, terminal_width(), everything=everything))


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard backtest",
        description="Replay reports of nodes against a policy, and show which marks it would have set.",
        examples=(
            "nodeguard backtest --policy policy.yaml /var/lib/nodeguard",
            "nodeguard backtest --policy policy.yaml recordings/gpu-7",
        ),
        epilog="Reads no cluster and writes nothing.",
    )
    add = parser.add_argument
    add("source", metavar="HISTORY|BUNDLE", nargs="+",
        help="files of aggregator --history, of each replica; or recordings, one for each node")  # fmt: skip
    add("--policy", metavar="FILE", action="append", required=True,
        help="the policy; a second one is compared with it")  # fmt: skip
    add("--since", metavar="TIME", type=lambda text: duration(text, _LONGEST), default=0.0,
        help="time range to report, back from now (30d; default: all)")  # fmt: skip
    add("--all", action="store_true", help="list every mark and degraded domain, not only the latest")
    add_checks(parser)
    add_output(parser, "text", "json", "yaml")
    return parser


def _sources(paths: Sequence[str], catalogue: Catalogue, signals: Mapping[str, Signal]) -> list[_Source]:
    """Return the reports of histories and recordings. Raises UsageError."""
    bundles = [path for path in paths if os.path.isfile(os.path.join(path, _BUNDLE))]
    names: dict[str, str] = {}
    for path in bundles:
        name = os.path.basename(os.path.abspath(path))
        if name in names:
            raise UsageError(
                f"{names[name]} and {path} have the same name {name}, which is that of their node: rename one"
            )
        names[name] = path
    recorded = [_recorded(name, path, catalogue, signals) for name, path in names.items()]
    histories = [_history(path) for path in paths if path not in bundles]
    if recorded:
        histories.append(_Source(heapq.merge(*recorded, key=lambda step: step.at), 0.0))
    return histories


def _history(path: str) -> _Source:
    from nodeguard.aggregator.history.reader import read_history  # noqa: PLC0415 - brings SQLite

    history = read_history(path, time.time() + _CLOCK_DIFFERENCE)
    return _Source(history.steps, history.last_alive, path, history.future)


def _recorded(
    name: str, path: str, catalogue: Catalogue, signals: Mapping[str, Signal]
) -> Iterator[HistoryEvent]:
    from nodeguard.backtest.recordings import recording_steps  # noqa: PLC0415 - a history wants no recordings
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415

    recording = Recording.open(path)
    manifest = recording.manifest
    validate_platform(catalogue, manifest.platform, f"{path}: platform")
    site = PlatformHints(manifest.platform, manifest.instance_type)
    judgement = Pipeline(catalogue, signals, site, one_shot=not recording.end)
    return in_time_order(
        recording_steps(name, recording, all_sources(catalogue.patterns), judgement, catalogue)
    )


def _require_reports(result: BacktestResult, paths: Sequence[str], seconds: float) -> None:
    """Raise UsageError where no report is in the time range."""
    if not result.reports:
        raise UsageError(
            f"{', '.join(paths)}: no report of an agent is there: wait, or choose another source"
        )
    if not result.recent_reports:
        raise UsageError(
            f"--since: no report within {format_duration(seconds)}, "
            f"the latest at {format_time(result.last_step)}: choose a longer time, or omit it"
        )
