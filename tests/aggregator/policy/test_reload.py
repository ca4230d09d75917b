"""A policy file that changes while the aggregator runs."""

from __future__ import annotations

from pathlib import Path

from nodeguard.aggregator.policy.reload import FileWatcher, reload_policy
from nodeguard.model.policy import Policy, StalePolicy

OLD = Policy(stale=StalePolicy(after=60.0))


def test_a_good_file_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("pause: true\n")
    assert reload_policy(OLD, tmp_path / "policy.yaml", {}, 0.0) == (Policy(pause=True), "", ())


def test_what_is_doubtful_is_adopted_and_said(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("budget: {fleet: 30%}\n")
    policy, error, [doubt] = reload_policy(OLD, tmp_path / "policy.yaml", {}, 0.0)
    assert (policy.budget.fleet, error, doubt.field) == (0.3, "", "fleet")


def test_a_wrong_file_leaves_the_last_good_policy_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("pause: maybe\n")
    policy, error, doubts = reload_policy(OLD, tmp_path / "policy.yaml", {}, 0.0)
    assert policy is OLD
    assert error == (
        f"{tmp_path}/policy.yaml:1: pause: 'maybe' does not fit: write true or false; "
        "the policy stays as it was before this change"
    )
    assert doubts == ()


def test_a_file_that_is_gone_leaves_the_last_good_policy(tmp_path: Path) -> None:
    policy, error, _ = reload_policy(OLD, tmp_path / "policy.yaml", {}, 0.0)
    assert policy is OLD
    assert "cannot be read: No such file or directory" in error


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
    assert reload_policy(OLD, tmp_path / "policy.yaml", {}, 0.0).policy.pause
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
