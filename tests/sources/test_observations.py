from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.observation import Observation
from nodeguard.model.target import NODE
from nodeguard.sources.machines.recording import RecordingMachine
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.observations import ObservationsSource
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target
from tests.sources.test_probe_file import OK, text

FOLDER = "/run/nodeguard/observations.d"
NCCL = f"{FOLDER}/nccl.json"
SCRATCH = {"name": "write", "target": "fs:/scratch", "health": "suspect", "message": "EIO", "value": 3.5}
FILES = {NCCL: text()}


def test_probe_results_become_signals() -> None:
    observations = by_target(ObservationsSource(), FakeMachine({NCCL: text(OK, SCRATCH)}))
    assert observations == {
        "probe/nccl": Observation(
            "observations",
            "probe/nccl",
            signals={
                "probe.name": "nccl",
                "probe.target": "node",
                "probe.file": NCCL,
                "probe.message": "12 GB/s between all pairs",
                "probe.health": "ok",
            },
        ),
        "probe/write/fs:/scratch": Observation(
            "observations",
            "probe/write/fs:/scratch",
            signals={
                "probe.name": "write",
                "probe.target": "fs:/scratch",
                "probe.file": NCCL,
                "probe.message": "EIO",
                "probe.health": "suspect",
                "probe.value": 3.5,
            },
        ),
    }


def test_without_a_folder_there_are_no_probes() -> None:
    assert by_target(ObservationsSource(), FakeMachine()) == {}
    assert by_target(ObservationsSource(), FakeMachine(directories=[FOLDER])) == {}
    assert isinstance(by_target(ObservationsSource(), ThisMachine()), dict)


def test_unfinished_and_other_files_are_not_read() -> None:
    files = {f"{FOLDER}/.nccl.json": "{", f"{FOLDER}/nccl.json.tmp": "{", f"{FOLDER}/README": "hello"}
    assert by_target(ObservationsSource(), FakeMachine(files)) == {}


def test_expired_result_is_unread_with_its_age() -> None:
    machine = FakeMachine(FILES)
    machine.later(900)
    assert by_target(ObservationsSource(), machine)["probe/nccl"].unreadable == {}
    machine.later(600)
    observations = by_target(ObservationsSource(), machine)["probe/nccl"]
    reason = f"{NCCL}: written 25 min ago and valid for 15 min: let the probe write again, or remove the file"
    assert observations.unreadable == {"probe.health": reason, "probe.message": reason}
    assert observations.signals == {"probe.name": "nccl", "probe.target": "node", "probe.file": NCCL}


def test_invalid_file_does_not_clear_earlier_results() -> None:
    source, machine = ObservationsSource(), FakeMachine({NCCL: text(OK, SCRATCH)})
    by_target(source, machine)
    machine.files[NCCL] = text()[:30]
    for _ in range(2):
        observations = by_target(source, machine)
        assert set(observations) == {"probe/nccl", "probe/write/fs:/scratch"}
        unread = observations["probe/write/fs:/scratch"].unreadable
        assert unread.keys() == {"probe.health", "probe.value", "probe.message"}
        assert unread["probe.health"].startswith(f"{NCCL}: is not JSON")
    machine.files[NCCL] = text()
    assert set(by_target(source, machine)) == {"probe/nccl"}


def test_invalid_observation_does_not_clear_its_earlier_result() -> None:
    source, machine = ObservationsSource(), FakeMachine({NCCL: text(OK, SCRATCH)})
    by_target(source, machine)
    machine.files[NCCL] = text(OK, {**SCRATCH, "health": "bad"})
    for _ in range(2):
        observations = by_target(source, machine)
        assert observations["probe/nccl"].signals["probe.health"] == "ok"
        assert (
            observations["probe/write/fs:/scratch"]
            .unreadable["probe.health"]
            .startswith(f"{NCCL}: observations[1].health: 'bad' is not valid: use one of ok")
        )


def test_file_that_was_never_valid_is_unread_under_its_name() -> None:
    machine = FakeMachine({NCCL: text({"name": "A"}, {"name": "B"})})
    observations = by_target(ObservationsSource(), machine)
    reason = f"{NCCL}: observations[0].message: is missing: add it (and 1 more)"
    assert observations["probe/nccl.json"].unreadable == {"probe.health": reason}


def test_a_file_that_is_refused() -> None:
    observations = by_target(ObservationsSource(), FakeMachine(errors={NCCL: errno.EACCES}))
    reason = f"{NCCL}: permission denied: run as root"
    assert observations["probe/nccl.json"].unreadable == {"probe.health": reason}


def test_refused_folder_does_not_clear_earlier_results() -> None:
    observations = by_target(ObservationsSource(), FakeMachine(errors={FOLDER: errno.EACCES}))
    assert observations == {
        NODE: Observation("observations", NODE, "failed", detail=f"{FOLDER}: permission denied: run as root")
    }


def test_file_removed_during_the_read_is_skipped() -> None:
    source, machine = ObservationsSource(), FakeMachine(FILES)
    by_target(source, machine)
    machine.errors[NCCL] = errno.ENOENT
    assert by_target(source, machine) == {}


def test_removed_file_has_no_observations() -> None:
    source, machine = ObservationsSource(), FakeMachine(FILES)
    by_target(source, machine)
    machine.remove(FOLDER)
    assert by_target(source, machine) == {}


def test_two_files_cannot_report_the_same_target() -> None:
    other = f"{FOLDER}/other.json"
    observations = by_target(
        ObservationsSource(), FakeMachine({**FILES, other: text({**OK, "health": "fatal"})})
    )
    assert observations["probe/nccl"].signals["probe.health"] == "ok"
    reason = f"{other}: probe/nccl is also in {NCCL}: remove one, or give it another name"
    assert observations["probe/other.json"].unreadable == {"probe.health": reason}


def test_expired_file_does_not_replace_a_current_one() -> None:
    old = f"{FOLDER}/a-month-ago.json"
    observations = by_target(
        ObservationsSource(), FakeMachine({**FILES, old: text(written_at="2026-12-15T08:00:00Z")})
    )
    assert observations["probe/nccl"].signals["probe.file"] == NCCL
    assert observations["probe/a-month-ago.json"].unreadable


def test_number_of_files_is_limited() -> None:
    def observation(at: int) -> dict[str, Any]:
        return {**OK, "name": f"n-{at}"}

    source = ObservationsSource()
    machine = FakeMachine({f"{FOLDER}/{at:03}.json": text(observation(at)) for at in range(64)})
    assert len(by_target(source, machine)) == 64
    machine.files |= {f"{FOLDER}/000-{at:03}.json": text(observation(100 + at)) for at in range(40)}
    observations = by_target(source, machine)
    lost = {
        target for target, observation in observations.items() if "probe.health" in observation.unreadable
    }
    assert lost == {f"probe/n-{at}" for at in range(24, 64)}
    reason = f"{FOLDER}/063.json: is skipped: only 64 of 104 files are read: remove files that are not needed"
    assert observations["probe/n-63"].unreadable["probe.health"] == reason
    assert len(by_target(ObservationsSource(), machine)) == 65


def test_name_of_any_bytes_is_printable() -> None:
    observations = by_target(ObservationsSource(), FakeMachine({f"{FOLDER}/\udcff\n.json": "{"}))
    assert list(observations) == ["probe/\\udcff\\n.json"]


def test_recording_contains_probe_results(tmp_path: Path) -> None:
    serial = {**OK, "message": "serial 1653921000123 at 10.1.2.3 is slow"}
    machine = FakeMachine({NCCL: text(serial, SCRATCH)})
    now = machine.now()
    for anonymise in (False, True):
        where = str(tmp_path / str(anonymise))
        manifest = Manifest("node-17", now.boot_id, now.wall, now.mono)
        anonymiser = Anonymiser(manifest.hostname) if anonymise else None
        with BundleWriter(where, manifest, ThisMachine().link, anonymiser=anonymiser) as writer:
            recorded = list(ObservationsSource().read(RecordingMachine(machine, lambda add: add(writer))))
        again = list(ObservationsSource().read(ReplayMachine(Recording.open(where))))
        assert (again == recorded) is not anonymise
        assert [observation.target for observation in again] == [
            observation.target for observation in recorded
        ]
        assert not any(observation.unreadable for observation in again)
    stored = json.loads((tmp_path / "True" / NCCL.lstrip("/")).read_text())
    assert not re.search("10.1.2.3|slow", stored["observations"][0]["message"])
