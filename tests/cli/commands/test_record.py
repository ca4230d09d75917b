"""nodeguard record: this machine, for real."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodeguard.bundle.bundle_directory import BundleDirectory
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.cli.commands import record
from nodeguard.cli.main import main
from nodeguard.cli.render.verdict_json import CheckOutput
from nodeguard.model.observation import Observation
from nodeguard.sources.machine import Machine
from tests.agent.scene import Scripted
from tests.sources.fake_machine import FakeMachine


def verdict(capsys: pytest.CaptureFixture[str], *arguments: str) -> CheckOutput:
    main(["check", "--format", "json", *arguments])
    return msgspec.json.decode(capsys.readouterr().out, type=CheckOutput)


def told(output: CheckOutput) -> list[tuple[str, str, str, str]]:
    # Whether somebody's process waits for a disk just now is nothing that two looks need agree on.
    moving = {"kernel-hung-task", "process-blocked"}
    return [
        (one.check, one.target, one.health, one.message) for one in output.findings if one.check not in moving
    ]


def test_a_recording_of_this_machine_comes_to_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "bundle")
    assert main(["record", directory]) == 0
    assert f"nodeguard check --from {directory}" in capsys.readouterr().out
    live, replayed = verdict(capsys), verdict(capsys, "--from", directory)
    assert told(replayed) == told(live)
    assert replayed.unread == live.unread
    assert replayed.fine == live.fine


def test_an_anonymised_recording_names_nobody_and_judges_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "bundle"
    assert main(["record", str(directory), "--anonymise", "--for", "2s"]) == 0
    capsys.readouterr()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for path in directory.rglob("*"):
        if path.is_file():
            assert boot_id not in path.read_text(errors="replace"), path
    assert os.uname().nodename not in (directory / "bundle.yaml").read_text().split()
    assert told(verdict(capsys, "--from", str(directory))) == told(verdict(capsys))


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["record", str(tmp_path)]) == 3
    assert str(tmp_path) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "/proc/nodeguard"]) == 3
    assert "/proc/nodeguard" in capsys.readouterr().err


def test_a_platform_that_is_not_known_is_refused_before_anything_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", str(tmp_path / "bundle"), "--platform", "nope"]) == 3
    assert "platform 'nope' is not known: it is one of aws-p4d, " in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_a_source_that_is_late_tells_nothing_and_does_not_count_as_recorded(tmp_path: Path) -> None:
    released = threading.Event()

    def stuck(machine: Machine) -> Iterator[Observation]:
        machine.read("/sys/late")
        released.wait()
        yield from ()

    def quick(machine: Machine) -> Iterator[Observation]:
        machine.read("/sys/quick")
        yield from ()

    directory = str(tmp_path / "bundle")
    machine: Any = FakeMachine({"/sys/late": "1", "/sys/quick": "1"}, errors={"/sys": errno.EINVAL})
    sources = [Scripted("late", stuck, deadline=0.05), Scripted("quick", quick)]
    manifest = Manifest("h", "boot-1", 0.0, 1000.0, sources={"late": "recorded", "quick": "recorded"})
    try:
        with BundleWriter(directory, manifest, machine.link) as writer:
            record._Recorder(machine, writer, sources, 60.0).record(0.0)
    finally:
        released.set()
    recording = Recording.open(directory)
    assert recording.manifest.sources == {"late": "not-recorded", "quick": "recorded"}
    assert recording.state_at(0).tree.names("/sys") == ("quick",)


def test_a_full_disk_leaves_no_half_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "bundle"
    write = BundleDirectory._write

    def full(store: BundleDirectory, *layer: Any) -> None:
        write(store, *layer)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BundleDirectory, "_write", full)
    assert main(["record", str(directory)]) == 3
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert said.endswith(f"{directory} is empty: make room, or name a folder on another disk\n")
    assert list(directory.iterdir()) == []
