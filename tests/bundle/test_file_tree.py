from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.file_tree import TreeDraft, apply_changes, apply_frame, changes_between, tree_difference
from nodeguard.bundle.layer import Directory, Link

names = st.sampled_from(["a", "b", "c"])
links = st.sampled_from([Link("a"), Link("../b"), Link("a/c"), Link("nowhere")])
trees = st.recursive(
    st.sampled_from(["1", "2", ""]) | links, lambda below: st.dictionaries(names, below, max_size=3)
)
directories = st.dictionaries(names, trees, max_size=3)


@settings(deadline=None)
@given(directories, directories)
def test_difference_applied_to_the_old_value_gives_the_new_value(before: Directory, after: Directory) -> None:
    copied = copy.deepcopy((before, after))
    removed, new = tree_difference(before, after)
    assert apply_frame(before, removed, new) == after
    assert (before, after) == copied


@settings(deadline=None)
@given(directories)
def test_equal_values_have_no_difference(tree: Directory) -> None:
    assert tree_difference(tree, copy.deepcopy(tree)) == ([], {})


@settings(deadline=None)
@given(directories, directories)
def test_no_tree_is_changed(before: Directory, above: Directory) -> None:
    copied = copy.deepcopy((before, above))
    apply_frame(before, ["/a/b", "/c"], above)
    assert (before, above) == copied


def test_unchanged_subtrees_are_shared_between_frames() -> None:
    unchanged: Directory = {"y": "2"}
    before: Directory = {"sys": {"a": {"x": "1"}, "b": unchanged}}
    after = apply_frame(before, ["/sys/a/x"], {})
    assert after == {"sys": {"a": {}, "b": {"y": "2"}}}
    changed = after["sys"]
    assert isinstance(changed, dict)
    assert changed["b"] is unchanged


def test_removed_takes_whole_names_with_all_below_and_comes_before_the_frames_files() -> None:
    before: Directory = {"sys": {"mlx5_1": {"a": "1", "b": "2"}, "mlx5_10": {"a": "3"}}}
    after = apply_frame(before, ["/sys/mlx5_1", "/sys/never/there"], {"sys": {"mlx5_1": {"c": "4"}}})
    assert after == {"sys": {"mlx5_1": {"c": "4"}, "mlx5_10": {"a": "3"}}}


def test_files_of_a_frame_are_stored_at_their_resolved_path() -> None:
    before: Directory = {
        "class": {"eth0": Link("../devices/eth0")},
        "devices": {"eth0": {"state": "up", "mtu": "9000"}},
    }
    after = apply_frame(before, [], {"class": {"eth0": {"state": "down"}}})
    assert after["devices"] == {"eth0": {"state": "down", "mtu": "9000"}}
    assert after["class"] == before["class"]
    assert apply_frame(before, ["/class/eth0/mtu"], {})["devices"] == {"eth0": {"state": "up"}}


def test_removal_of_a_link_keeps_its_destination() -> None:
    before: Directory = {"class": {"eth0": Link("../devices/eth0")}, "devices": {"eth0": {"state": "up"}}}
    assert apply_frame(before, ["/class/eth0"], {}) == {"class": {}, "devices": {"eth0": {"state": "up"}}}


def test_a_file_gives_way_to_a_directory_and_the_other_way_round() -> None:
    assert apply_frame({"a": "1", "b": {"c": "2"}}, [], {"a": {"d": "3"}, "b": "4"}) == {
        "a": {"d": "3"},
        "b": "4",
    }


def test_a_draft_makes_the_directories_on_its_way() -> None:
    draft = TreeDraft({"a": "file"})
    draft.put(("a", "b", "c"), "1")
    draft.drop(("x", "y"))
    assert draft.root == {"a": {"b": {"c": "1"}}}


maps = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@settings(deadline=None)
@given(maps, maps)
def test_the_changes_between_two_maps_make_one_of_the_other(
    before: dict[str, int], after: dict[str, int]
) -> None:
    assert apply_changes(before, changes_between(before, after)) == after


def test_none_removes_a_key_that_may_be_absent() -> None:
    assert apply_changes({"a": 1, "b": 2}, {"a": None, "c": None, "d": 3}) == {"b": 2, "d": 3}
    assert changes_between({"a": 1, "b": 2}, {"b": 3}) == {"a": None, "b": 3}
