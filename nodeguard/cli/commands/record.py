"""nodeguard record: what is read of this machine, into a bundle."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Sequence

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recording_buffer import RecordingBuffer
from nodeguard.bundle.writer import BundleWriter
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.options import add_machine, directory, validate_platform, warn_about_instance_type
from nodeguard.cli.progress import progress
from nodeguard.cli.streams import print_error, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.model.observation import Reading
from nodeguard.model.target import NODE
from nodeguard.pipeline.reader import Reader
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.machines.recording import RecordingMachine
from nodeguard.sources.registry import all_sources
from nodeguard.sources.source import Source


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    catalogue, _ = load_catalogue()
    validate_platform(catalogue, options.platform)
    warn_about_instance_type(catalogue, options.instance_type, options.platform)
    sources = all_sources(catalogue.patterns)
    with LiveMachine() as machine:
        manifest = _manifest(machine, sources, options.platform, options.instance_type)
        try:
            with BundleWriter(
                options.directory, manifest, machine.link, anonymise=options.anonymise
            ) as writer:
                recorder = _Recorder(machine, writer, sources, options.timeout)
                with progress("recording", options.seconds or 0.0):
                    recorder.record(options.seconds or 0.0)
        except BundleError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(_refused(error, options.directory)) from None
    for line in (*recorder.unread, *writer.notes):
        print_error(line)
    print_output(f"{options.directory}: recorded. Judge it with: nodeguard check --from {options.directory}")
    return OK


def _refused(error: OSError, directory: str) -> str:
    where = error.filename or directory
    if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return f"{where}: {error.strerror}: name a folder that can be written to"
    kept = "is whole up to the moment before" if os.path.exists(f"{directory}/bundle.yaml") else "is empty"
    return f"{where}: {error.strerror}, and {directory} {kept}: make room, or name a folder on another disk"


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard record",
        description="Records what is read of this machine into a folder, for a bug report or a test.",
        epilog="Left out always: messages of user processes, audit records, command lines, environments, "
        "process names in driver messages.",
    )
    parser.add_argument(
        "directory", metavar="DIR", type=directory, help="where to: a folder that is empty or not there"
    )
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", type=duration, help="record for so long (10m), not just once"
    )
    parser.add_argument(
        "--anonymise", action="store_true", help="replace host names, serials, UUIDs, GUIDs and addresses"
    )
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
    """Reads sources one after the other, so that what a frame holds is of one moment, and tells a writer."""

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

    def record(self, lasting: float) -> None:
        """Record the base, then a frame whenever sources are due, for so many seconds."""
        began = self._machine.now().mono
        for source in self._sources:
            self._told(source)
        for at in range(1, math.floor(lasting) + 1):
            due = [
                source for source in self._sources if at % source.interval == 0 or at == math.floor(lasting)
            ]
            if due:
                time.sleep(max(0.0, began + at - self._machine.now().mono))
                self._writer.frame(at, self._machine.now())
                for source in due:
                    self._told(source)

    def _told(self, source: Source) -> None:
        tale = RecordingBuffer()
        told = RecordingMachine(self._machine, tale, self._in_proc)
        [reading] = self._reader.read([source], self._within, told)
        if self._reader.is_late(source.name):
            self._writer.omit(source.name)
        else:
            tale.replay_to(self._writer)
        for why in _failures(reading):
            if why not in self.unread:
                self.unread.append(why)


def _failures(reading: Reading) -> list[str]:
    return [
        f"{reading.source}: {one.detail}"
        for one in reading.observations
        if one.target == NODE and one.status in {"failed", "hung"}
    ]
