"""Reload of the policy file: the watcher and the reloader."""

from __future__ import annotations

import os
from pathlib import Path

from nodeguard.aggregator.policy.reload import FileWatcher, PolicyReloader
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Mode, NodeLocation, Policy
from tests.logs import LogLines

CHECKS = {"gpu-lost": Health.FATAL}


def at(seconds: float) -> Instant:
    return Instant(1e9 + seconds, seconds, "")


def write(file: Path, text: str, modified: int) -> None:
    file.write_text(text)
    os.utime(file, (modified, modified))


def reload(policy: PolicyReloader, planner: Planner, start: float) -> list[str]:
    """Call the reloader until it has noticed a change. Return the errors that it has found."""
    errors = [policy(planner, at(seconds)) for seconds in (start, start + 1.0, start + 2.0)]
    return [error for error in errors if error]


def test_a_valid_change_is_adopted_and_an_invalid_one_rejected(tmp_path: Path, log: LogLines) -> None:
    file = tmp_path / "policy.yaml"
    write(file, "mode: observe\n", 1)
    policy = PolicyReloader(file, CHECKS, ())
    planner = Planner(Policy(), CHECKS)
    reload(policy, planner, 10.0)
    assert (log.text(), planner.policy) == ([], Policy())
    write(file, "modeRules:\n- {check: gpu-lost, mode: enforce}\n", 2)
    reload(policy, planner, 20.0)
    assert [rule.mode for rule in planner.policy.modes] == [Mode.ENFORCE]
    assert log.text() == [f"INFO the new policy file is in use file={file}"]
    adopted = planner.policy
    write(file, "budget: {fleet: 0%}\n", 3)
    rejected = [*reload(policy, planner, 30.0), *reload(policy, planner, 40.0)]
    assert planner.policy is adopted
    [error] = rejected
    assert f"{file}:1: fleet: 0% is invalid" in error
    assert "the previous policy stays in use" in error
    assert (policy.error, policy.rejected_count) == (error, 1)
    assert log.text()[1:] == [f"ERROR rejected the policy file error={error}"]
    write(file, "pause: true\n", 4)
    reload(policy, planner, 50.0)
    assert (planner.policy.pause, policy.error) == (True, "")


def test_a_changed_table_of_node_locations_is_read_again(tmp_path: Path) -> None:
    file, table = tmp_path / "policy.yaml", tmp_path / "racks.csv"
    write(table, "node,rack\ngpu-1,r1\n", 1)
    write(file, "nodeLocations: racks.csv\n", 1)
    policy = PolicyReloader(file, CHECKS, ())
    planner = Planner(Policy(), CHECKS)
    write(table, "node,rack\ngpu-1,r2\n", 2)
    reload(policy, planner, 10.0)
    assert planner.policy.locations == (NodeLocation("gpu-1", {"rack": "r2"}),)
    write(table, "node,rak\ngpu-1,r2\n", 3)
    reload(policy, planner, 20.0)
    assert f"{table}:1: rak: is an unknown column" in policy.error
    write(file, "nodeLocations: other.csv\n", 4)
    reload(policy, planner, 30.0)
    assert "'other.csv' cannot be read" in policy.error
    write(tmp_path / "other.csv", "node,power\ngpu-*,feed-a\n", 5)
    reload(policy, planner, 40.0)
    assert planner.policy.locations == (NodeLocation("gpu-*", {"power": "feed-a"}),)
    assert not policy.error


def test_a_requested_reload_happens_at_once(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pause: true\n")
    policy = PolicyReloader(file, CHECKS, ())
    planner = Planner(Policy(), CHECKS)
    policy(planner, at(1.0))
    assert not planner.policy.pause
    policy.is_requested = True
    policy(planner, at(1.1))
    assert planner.policy.pause


def test_a_missing_file_leaves_the_previous_policy_and_warnings_are_logged(
    tmp_path: Path, log: LogLines
) -> None:
    file = tmp_path / "policy.yaml"
    policy, planner = PolicyReloader(file, CHECKS, ()), Planner(Policy(), CHECKS)
    policy.is_requested = True
    policy(planner, at(1.0))
    assert "cannot be read: No such file or directory" in policy.error
    file.write_text("budget: {fleet: 30%}\n")
    policy.is_requested = True
    policy(planner, at(2.0))
    assert (planner.policy.budget.fleet, policy.error) == (0.3, "")
    assert "a faulty check may take out 30% of the fleet" in log.text()[1]


def mounted(folder: Path, version: str, text: str) -> None:
    """Update a mounted ConfigMap as the kubelet does: create a folder, swap `..data`, remove the old folder."""
    before = folder / "..data"
    old = folder / before.readlink() if before.is_symlink() else None
    (folder / f"..{version}").mkdir()
    (folder / f"..{version}" / "policy.yaml").write_text(text)
    (folder / "..data_tmp").symlink_to(f"..{version}")
    (folder / "..data_tmp").rename(before)
    if old is not None:
        (old / "policy.yaml").unlink()
        old.rmdir()
    else:
        (folder / "policy.yaml").symlink_to("..data/policy.yaml")


def test_an_update_of_a_mounted_config_map_is_detected_once(tmp_path: Path) -> None:
    mounted(tmp_path, "2027_01", "pause: false\n")
    watcher = FileWatcher(tmp_path / "policy.yaml")
    assert [watcher.changed(now) for now in (0.0, 1.0, 2.0)] == [False, False, False]
    mounted(tmp_path, "2027_02", "pause: true \n")
    assert [watcher.changed(now) for now in (3.0, 4.0, 5.0, 6.0)] == [False, True, False, False]
    mounted(tmp_path, "2027_03", "pause: false\n")
    mounted(tmp_path, "2027_04", "pause: false\n")
    assert [watcher.changed(now) for now in (7.0, 8.0, 9.0)] == [False, True, False]


def test_a_file_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("")
    watcher = FileWatcher(file)
    changes = []
    for now in range(4):
        file.write_text("x" * (now + 1))
        changes.append(watcher.changed(float(now)))
    assert changes == [False] * 4
    assert watcher.changed(4.0)


def test_the_file_is_examined_once_a_second(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    watcher = FileWatcher(file)
    file.write_text("{}")
    assert [watcher.changed(now) for now in (10.0, 10.9, 11.0)] == [False, False, True]


def test_a_removed_and_a_created_file_are_changes(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    watcher = FileWatcher(file)
    file.unlink()
    assert [watcher.changed(now) for now in (0.0, 1.0, 2.0)] == [False, True, False]
    file.write_text("{}")
    assert [watcher.changed(now) for now in (3.0, 4.0, 5.0)] == [False, True, False]


def test_a_change_between_creation_of_the_watcher_and_the_first_read_is_detected(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    watcher = FileWatcher(file)
    file.write_text("pause: true")
    assert [watcher.changed(now) for now in (0.0, 1.0)] == [False, True]
