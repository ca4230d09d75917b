from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.fleet.state.topology.members import DomainMembers

PATHS = ("fabric/p1/l1", "fabric/p1/l2", "fabric/p2/l1", "rack/r1", "fabric/p1", "driver/580")


def test_a_node_is_in_a_domain_and_in_its_parents() -> None:
    members = DomainMembers()
    assert members.set_domains("u1", ("fabric/p7/leaf3", "rack/r1"))
    assert members.paths("u1") == ("fabric/p7", "fabric/p7/leaf3", "rack/r1")
    assert members.nodes("fabric/p7") == members.nodes("fabric/p7/leaf3") == {"u1"}
    assert set(members.domains()) == {"fabric/p7", "fabric/p7/leaf3", "rack/r1"}


def test_a_domain_has_a_parent_and_children() -> None:
    members = DomainMembers()
    members.set_domains("u1", ("fabric/p7/leaf3",))
    members.set_domains("u2", ("fabric/p7/leaf4",))
    members.set_domains("u3", ("fabric/p8/leaf3",))
    assert members.children("fabric/p7") == {"fabric/p7/leaf3", "fabric/p7/leaf4"}
    assert members.children("fabric") == {"fabric/p7", "fabric/p8"}
    assert members.children("fabric/p7/leaf3") == set()
    assert members.parent("fabric/p7/leaf3") == "fabric/p7"
    assert not members.parent("fabric/p7")
    assert members.topology_of("fabric/p7/leaf3") == "fabric"
    assert members.size("fabric/p7") == 2


def test_a_domain_without_nodes_does_not_exist() -> None:
    members = DomainMembers()
    members.set_domains("u1", ("fabric/p7/leaf3",))
    members.set_domains("u2", ("fabric/p7/leaf4",))
    assert members.set_domains("u1", ("fabric/p7/leaf4",))
    assert members.children("fabric/p7") == {"fabric/p7/leaf4"}
    assert members.size("fabric/p7/leaf3") == 0
    assert members.remove("u1")
    assert not members.remove("u1")
    members.remove("u2")
    assert (list(members.domains()), members.children("fabric"), members.paths("u2")) == ([], set(), ())


def test_the_same_domains_again_change_nothing() -> None:
    members = DomainMembers()
    assert members.set_domains("u1", ("fabric/p7", "fabric/p7/leaf3"))
    assert not members.set_domains("u1", ("fabric/p7/leaf3",))


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.lists(st.sampled_from(PATHS), max_size=4)), max_size=30)
)
def test_the_index_has_the_current_domains_after_any_change(steps: list[tuple[str, list[str]]]) -> None:
    members, fresh, last = DomainMembers(), DomainMembers(), dict(steps)
    for uid, paths in steps:
        members.set_domains(uid, paths)
    for uid, paths in last.items():
        fresh.set_domains(uid, paths)
    assert set(members.domains()) == set(fresh.domains())
    for path in (*fresh.domains(), "fabric", "rack", "driver"):
        assert members.nodes(path) == fresh.nodes(path)
        assert members.children(path) == fresh.children(path)
        assert all(members.parent(child) in {path, ""} for child in members.children(path))
