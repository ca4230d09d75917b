from __future__ import annotations

import os
from pathlib import Path

from nodeguard.aggregator.policy.reload import PolicyReloader
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
    written(file, "modes:\n- {check: gpu-lost, mode: enforce}\n", 2)
    look(20.0)
    assert [rule.mode for rule in planner.policy.modes] == [Mode.ENFORCE]
    right = planner.policy
    written(file, "budget: {fleet: 0%}\n", 3)
    look(30.0)
    look(40.0)
    assert planner.policy is right
    [why] = refused
    assert f"{file}:1: fleet: 0% is no share" in why
    assert "the policy stays as it was" in why
    assert (policy.error, policy.rejected_count) == (why, 1)
    written(file, "pause: true\n", 4)
    look(50.0)
    assert (planner.policy.pause, policy.error) == (True, "")


def test_a_table_of_places_that_changes_is_read_again_with_its_policy(tmp_path: Path) -> None:
    file, table, told = tmp_path / "policy.yaml", tmp_path / "racks.csv", list[str]()
    written(table, "node,rack\ngpu-1,r1\n", 1)
    written(file, "places: racks.csv\n", 1)
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
    assert f"{table}:1: rak: is no column that is known here" in policy.error
    written(file, "places: other.csv\n", 4)
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
