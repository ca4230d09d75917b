"""Reload of the policy file: the watcher and the reloader."""

from __future__ import annotations

import os
from pathlib import Path

from nodeguard.aggregator.policy.reload import FileWatcher, PolicyReloader
from nodeguard.fleet.planner import Planner
from nodeguard.model.finding import Health
from nodeguard.model.instant import Instant
from nodeguard.model.policy import Mode, NodeLocation, Policy

CHECKS = {"gpu-lost": Health.FATAL}


def at(seconds: float) -> Instant:
    return Instant(1e9 + seconds, seconds, "")


def written(file: Path, text: str, moment: int) -> None:
    file.write_text(text)
    os.utime(file, (moment, moment))


def test_a_changed_file_is_adopted_and_a_wrong_one_told_of_and_left(tmp_path: Path) -> None:
    file, told, refused = tmp_path / "policy.yaml", list[str](), list[str]()
    written(file, "mode: observe\n", 1)
    policy = PolicyReloader(file, CHECKS, told.append, refused.append)
    planner = Planner(Policy(), CHECKS)

    def look(start: float) -> None:
        for seconds in (start, start + 1.0, start + 2.0):
            policy(planner, at(seconds))

    look(10.0)
    assert (told, planner.policy) == ([], Policy())
    written(file, "modeRules:\n- {check: gpu-lost, mode: enforce}\n", 2)
    look(20.0)
    assert [rule.mode for rule in planner.policy.modes] == [Mode.ENFORCE]
    right = planner.policy
    written(file, "budget: {fleet: 0%}\n", 3)
    look(30.0)
    look(40.0)
    assert planner.policy is right
    [why] = refused
    assert f"{file}:1: fleet: 0% is invalid" in why
    assert "the previous policy stays in use" in why
    assert (policy.error, policy.rejected_count) == (why, 1)
    written(file, "pause: true\n", 4)
    look(50.0)
    assert (planner.policy.pause, policy.error) == (True, "")


def test_a_table_of_places_that_changes_is_read_again_with_its_policy(tmp_path: Path) -> None:
    file, table, told = tmp_path / "policy.yaml", tmp_path / "racks.csv", list[str]()
    written(table, "node,rack\ngpu-1,r1\n", 1)
    written(file, "nodeLocations: racks.csv\n", 1)
    policy = PolicyReloader(file, CHECKS, told.append)
    planner = Planner(Policy(), CHECKS)

    def look(start: float) -> None:
        for seconds in (start, start + 1.0, start + 2.0):
            policy(planner, at(seconds))

    written(table, "node,rack\ngpu-1,r2\n", 2)
    look(10.0)
    assert planner.policy.locations == (NodeLocation("gpu-1", {"rack": "r2"}),)
    written(table, "node,rak\ngpu-1,r2\n", 3)
    look(20.0)
    assert f"{table}:1: rak: is an unknown column" in policy.error
    written(file, "nodeLocations: other.csv\n", 4)
    look(30.0)
    assert "'other.csv' cannot be read" in policy.error
    written(tmp_path / "other.csv", "node,power\ngpu-*,feed-a\n", 5)
    look(40.0)
    assert planner.policy.locations == (NodeLocation("gpu-*", {"power": "feed-a"}),)
    assert not policy.error


def test_it_is_read_at_once_where_that_is_asked_for(tmp_path: Path) -> None:
    file, told = tmp_path / "policy.yaml", list[str]()
    file.write_text("pause: true\n")
    policy = PolicyReloader(file, CHECKS, told.append)
    planner = Planner(Policy(), CHECKS)
    policy(planner, at(1.0))
    assert not planner.policy.pause
    policy.is_requested = True
    policy(planner, at(1.1))
    assert planner.policy.pause


def test_a_missing_file_leaves_the_previous_policy_and_warnings_are_logged(tmp_path: Path) -> None:
    file, messages = tmp_path / "policy.yaml", list[str]()
    policy, planner = PolicyReloader(file, CHECKS, messages.append), Planner(Policy(), CHECKS)
    policy.is_requested = True
    policy(planner, at(1.0))
    assert "cannot be read: No such file or directory" in policy.error
    file.write_text("budget: {fleet: 30%}\n")
    policy.is_requested = True
    policy(planner, at(2.0))
    assert (planner.policy.budget.fleet, policy.error) == (0.3, "")
    assert "a faulty check may take out 30% of the fleet" in messages[1]


def mounted(folder: Path, version: str, text: str) -> None:
    """A ConfigMap as the kubelet mounts it: a new folder, then `..data` swapped to it, then the old one removed."""
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


def test_a_config_map_that_is_swapped_is_noticed_once(tmp_path: Path) -> None:
    mounted(tmp_path, "2027_01", "pause: false\n")
    watched = FileWatcher(tmp_path / "policy.yaml")
    assert [watched.changed(now) for now in (0.0, 1.0, 2.0)] == [False, False, False]
    mounted(tmp_path, "2027_02", "pause: true \n")
    assert [watched.changed(now) for now in (3.0, 4.0, 5.0, 6.0)] == [False, True, False, False]
    mounted(tmp_path, "2027_03", "pause: false\n")
    mounted(tmp_path, "2027_04", "pause: false\n")
    assert [watched.changed(now) for now in (7.0, 8.0, 9.0)] == [False, True, False]


def test_a_file_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("")
    watched = FileWatcher(file)
    said = []
    for now in range(4):
        file.write_text("x" * (now + 1))
        said.append(watched.changed(float(now)))
    assert said == [False] * 4
    assert watched.changed(4.0)


def test_between_two_looks_a_second_passes(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    watched = FileWatcher(file)
    file.write_text("{}")
    assert [watched.changed(now) for now in (10.0, 10.9, 11.0)] == [False, False, True]


def test_a_file_that_goes_away_and_comes_back_is_told_of_each_time(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    watched = FileWatcher(file)
    file.unlink()
    assert [watched.changed(now) for now in (0.0, 1.0, 2.0)] == [False, True, False]
    file.write_text("{}")
    assert [watched.changed(now) for now in (3.0, 4.0, 5.0)] == [False, True, False]


def test_what_changes_between_the_first_look_and_the_reading_is_not_missed(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    watched = FileWatcher(file)
    file.write_text("pause: true")
    assert [watched.changed(now) for now in (0.0, 1.0)] == [False, True]
