"""nodeguard record: a recording of the readings of all sources on this machine, as a bundle."""

from __future__ import annotations

import errno
import math
import os
import shutil
import time
from argparse import Namespace
from collections.abc import Sequence

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.kernel_words import known_words
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.writer import BundleWriter
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_machine, directory, validate_platform, warn_about_instance_type
from nodeguard.cli.progress import progress
from nodeguard.cli.streams import print_error, print_message
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Reading
from nodeguard.model.target import NODE
from nodeguard.pipeline.reader import Reader
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.machines.recording import RecordedReading, RecordingMachine
from nodeguard.sources.registry import all_sources
from nodeguard.sources.source import Source


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    catalogue, _ = load_catalogue()
    validate_platform(catalogue, options.platform)
    warn_about_instance_type(catalogue, options.instance_type, options.platform)
    sources = all_sources(catalogue.patterns)
    target = options.directory.rstrip("/") or options.directory
    # An interrupted recording must not look like a complete one.
    partial = f"{target}.partial"
    _make_room(target, partial, force=options.force)
    with LiveMachine() as machine:
        manifest = _manifest(machine, sources, options.platform, options.instance_type)
        try:
            vocabulary = known_log_words(catalogue) if options.anonymise else frozenset()
            anonymiser = Anonymiser(manifest.hostname, vocabulary=vocabulary) if options.anonymise else None
            with BundleWriter(partial, manifest, machine.link, anonymiser=anonymiser) as writer:
                recorder = _Recorder(machine, writer, sources, options.timeout)
                with progress("recording", options.seconds or 0.0):
                    recorder.record(options.seconds or 0.0)
            os.rename(partial, target)
        except KeyboardInterrupt:
            if os.path.exists(f"{partial}/bundle.yaml"):
                print_error(f"{partial}: complete up to the last frame. See nodeguard check --from {partial}")
            raise
        except OSError as error:
            raise UsageError(_write_error(error, partial)) from None
    for line in (*recorder.unread, *writer.notes):
        print_error(line)
    print_message(f"{options.directory}: recorded. Check it with: nodeguard check --from {options.directory}")
    return OK


def known_log_words(catalogue: Catalogue) -> frozenset[str]:
    """Return the words that an anonymised kernel log keeps: those of the known formats and codes."""
    from importlib.resources import files  # noqa: PLC0415 - slow to import

    from nodeguard.catalog.tables import example_lines  # noqa: PLC0415 - parses YAML

    names = [xid.name for xid in catalogue.xids.values()] + [sxid.name for sxid in catalogue.sxids.values()]
    return known_words([*example_lines(files("nodeguard.checks") / "tables"), *names])


def _make_room(target: str, partial: str, *, force: bool) -> None:
    """Remove earlier recordings with --force. Raises UsageError where a directory is in the way."""
    for path in (target, partial):
        try:
            is_free = not os.path.lexists(path) or not os.listdir(path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}: choose another directory") from None
        if is_free:
            continue
        if not force:
            problem = "an interrupted recording is there" if path == partial else "is not empty"
            raise UsageError(f"{path}: {problem}: choose another directory, or replace it with --force")
        if not os.path.isfile(f"{path}/bundle.yaml"):
            raise UsageError(f"{path}: is not a recording, and is not replaced: choose another directory")
        shutil.rmtree(path)


def _write_error(error: OSError, partial: str) -> str:
    path = error.filename or partial
    if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return f"{path}: {error.strerror}: choose a directory that can be written to"
    is_whole = os.path.exists(f"{partial}/bundle.yaml")
    left = "is complete up to the last frame" if is_whole else "is empty"
    return (
        f"{path}: {error.strerror}, and {partial} {left}: free space, or choose a directory on another disk"
    )


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard record",
        description="Save a recording of what is read on this machine, for a bug report or a test.",
        examples=("nodeguard record --anonymise recording",),
        epilog="Never recorded: messages of user processes, audit records, command lines, environments, and "
        "process names in driver messages.",
    )
    add = parser.add_argument
    add("directory", metavar="DIR", type=directory, help="directory to write: empty or new")
    add(
        "-d",
        "--duration",
        dest="seconds",
        metavar="TIME",
        type=duration,
        help="record for this long (10m) instead of once",
    )
    add(
        "--anonymise",
        "--anonymize",
        action="store_true",
        help="replace host names, serials, UUIDs, GUIDs and addresses, and unknown words of the kernel log",
    )
    add("--force", action="store_true", help="replace an earlier recording")
    add_machine(parser)
    return parser


def _manifest(machine: LiveMachine, sources: Sequence[Source], platform: str, instance_type: str) -> Manifest:
    now = machine.now()
    return Manifest(
        hostname=os.uname().nodename,
        boot_id=now.boot_id,
        recorded_at=now.wall,
        uptime_s=now.mono,
        platform=platform,
        instance_type=instance_type,
        sources={source.name: "recorded" for source in sources},
    )


class _Recorder:
    """Reads the sources one after the other, so that a frame holds one time, and writes the results."""

    def __init__(
        self, machine: LiveMachine, writer: BundleWriter, sources: Sequence[Source], within: float
    ) -> None:
        self._machine = machine
        self._writer = writer
        self._sources = sources
        self._within = within
        self._reader = Reader(machine)
        self._in_proc: set[str] = set()
        self.unread: list[str] = []

    def record(self, seconds: float) -> None:
        """Record the base, then a frame whenever sources are due, for some seconds."""
        began = self._machine.now().mono
        for source in self._sources:
            self._record(source)
        for second in range(1, math.floor(seconds) + 1):
            due = [
                source
                for source in self._sources
                if second % source.interval == 0 or second == math.floor(seconds)
            ]
            if due:
                time.sleep(max(0.0, began + second - self._machine.now().mono))
                self._writer.frame(second, self._machine.now())
                for source in due:
                    self._record(source)

    def _record(self, source: Source) -> None:
        # The source may still run in its thread when the bundle is written: only a finished round reaches it.
        readings: list[RecordedReading] = []
        recording_machine = RecordingMachine(self._machine, readings.append, self._in_proc)
        [reading] = self._reader.read([source], self._within, recording_machine)
        if self._reader.is_late(source.name):
            self._writer.omit(source.name)
        else:
            for recorded in readings:
                recorded(self._writer)
        for failure in _failures(reading):
            if failure not in self.unread:
                self.unread.append(failure)


def _failures(reading: Reading) -> list[str]:
    return [
        f"{reading.source}: {observation.detail}"
        for observation in reading.observations
        if observation.target == NODE and observation.status in {"failed", "hung"}
    ]
