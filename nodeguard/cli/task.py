"""What nodeguard check is asked to do, done: a recording or this machine, judged."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import NamedTuple

from nodeguard.cli.options import validate_platform, warn_about_instance_type
from nodeguard.cli.usage import UsageError
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.signal import Signal
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.source import Source


class Task(NamedTuple):
    """What is to be judged, and by what. only: families, None for all."""

    options: Namespace
    catalogue: Catalogue
    signals: dict[str, Signal]
    only: frozenset[str] | None
    sources: tuple[Source, ...]

    def judgement(self, site: PlatformHints) -> Pipeline:
        """A judgement of a node of which the site says so much. Raises UsageError."""
        validate_platform(self.catalogue, site.platform)
        warn_about_instance_type(self.catalogue, self.options.instance_type, self.options.platform)
        return Pipeline(self.catalogue, self.signals, site, self.only, one_shot=True)


class Told(NamedTuple):
    """A verdict of a moment, and the name of the node that it is about."""

    hostname: str
    verdict: Verdict
    instant: Instant


def recorded(task: Task) -> Told:
    """The verdict of a recording. Raises UsageError where it cannot be read."""
    from nodeguard.bundle.defect import BundleError  # noqa: PLC0415
    from nodeguard.bundle.recording import Recording  # noqa: PLC0415
    from nodeguard.pipeline.replay import replay_verdicts  # noqa: PLC0415 - a live check wants no recordings

    options = task.options
    if options.seconds is not None:
        raise UsageError("--for is for a live machine: a recording is judged to its end")
    try:
        recording = Recording.open(options.bundle)
    except BundleError as error:
        raise UsageError(str(error)) from None
    manifest = recording.manifest
    site = PlatformHints(
        options.platform or manifest.platform, options.instance_type or manifest.instance_type
    )
    *_, (at, verdict) = replay_verdicts(recording, task.sources, task.judgement(site))
    return Told(manifest.hostname, verdict, recording.state_at(at).instant)


def live(task: Task) -> Told:
    """The verdict of this machine, after one look or one that lasts. Raises UsageError."""
    from nodeguard.cli.progress import progress  # noqa: PLC0415
    from nodeguard.pipeline.one_shot import evaluate_live  # noqa: PLC0415 - a replay wants no threads
    from nodeguard.sources.machines.live import LiveMachine  # noqa: PLC0415

    options = task.options
    judgement = task.judgement(PlatformHints(options.platform, options.instance_type))
    with LiveMachine() as machine, progress("looking", options.seconds or 0.0):
        verdict = evaluate_live(machine, task.sources, judgement, options.seconds or 0.0, options.timeout)
        return Told(os.uname().nodename, verdict, machine.now())
