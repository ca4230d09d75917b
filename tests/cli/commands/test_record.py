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

from nodeguard.bundle.layer_files import BundleDirectory
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
    main(["check", "-o", "json", *arguments])
    return msgspec.json.decode(capsys.readouterr().out, type=CheckOutput)


def view(output: CheckOutput) -> list[tuple[str, str, str, str]]:
    # Two readings may disagree on blocked processes.
    changing = {"kernel-hung-task", "process-blocked"}
    return [
        (item.check, item.target, item.health, item.message)
        for item in output.findings
        if item.check not in changing
    ]


def test_a_recording_has_the_verdict_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = str(tmp_path / "bundle")
    assert main(["record", directory]) == 0
    assert f"nodeguard check --from {directory}" in capsys.readouterr().out
    live, replayed = verdict(capsys), verdict(capsys, "--from", directory)
    assert view(replayed) == view(live)
    assert replayed.unreadable == live.unreadable
    assert replayed.passed == live.passed


@pytest.mark.slow
def test_an_anonymised_recording_gives_the_same_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "bundle"
    assert main(["record", str(directory), "--anonymise", "--duration", "2s"]) == 0
    capsys.readouterr()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for path in directory.rglob("*"):
        if path.is_file():
            assert boot_id not in path.read_text(errors="replace"), path
    assert os.uname().nodename not in (directory / "bundle.yaml").read_text().split()
    assert view(verdict(capsys, "--from", str(directory))) == view(verdict(capsys))


def test_a_directory_that_is_not_empty_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["record", str(tmp_path)]) == 3
    assert str(tmp_path) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_that_cannot_be_created_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "/proc/nodeguard"]) == 3
    assert "/proc/nodeguard" in capsys.readouterr().err


def test_an_unknown_platform_is_refused_before_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", str(tmp_path / "bundle"), "--platform", "nope"]) == 3
    assert "platform 'nope' is unknown: expected one of aws-p4d, " in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_a_late_source_does_not_count_as_recorded(tmp_path: Path) -> None:
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


def test_a_full_disk_leaves_no_partial_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "bundle"
    write = BundleDirectory._write

    def full(store: BundleDirectory, *layer: Any) -> None:
        write(store, *layer)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BundleDirectory, "_write", full)
    assert main(["record", str(directory)]) == 3
    printed = capsys.readouterr().err
    assert "No space left on device" in printed
    assert printed.endswith(
        f"{directory}.partial is empty: free space, or choose a directory on another disk\n"
    )
    assert not directory.exists()


def test_an_interrupted_recording_names_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_frame = BundleWriter.frame

    def interrupt(writer: BundleWriter, *frame: Any) -> None:
        begin_frame(writer, *frame)
        raise KeyboardInterrupt

    monkeypatch.setattr(BundleWriter, "frame", interrupt)
    assert main(["record", str(tmp_path / "bundle"), "--duration", "10m"]) == 130
    assert f"See nodeguard check --from {tmp_path}/bundle.partial" in capsys.readouterr().err
    assert main(["check", "--from", f"{tmp_path}/bundle.partial"]) in {0, 1, 2}


def test_an_interrupted_recording_is_no_recording_and_is_replaced_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "bundle"

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(record._Recorder, "record", interrupted)
        assert main(["record", str(directory)]) == 130
    assert not directory.exists()
    assert main(["record", str(directory)]) == 3
    assert "replace it with --force" in capsys.readouterr().err
    assert main(["record", str(directory), "--force"]) == 0
    assert main(["record", str(directory)]) == 3
    assert main(["record", str(directory), "--force"]) == 0
