"""The owner of a node, and the record that the backend keeps of a node that a webhook owns."""

from __future__ import annotations

import pytest

from nodeguard.executors.owners import NodeOwners, OwnedNodes, accepted_kinds, owned_record
from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.model.mark import AcceptedMarks, Charge, Mark, MarkCause, MarkRecord

NOW = 1_700_000_000.0
Q, S = Mark.QUARANTINE, Mark.SUSPECT


def record(*marks: Mark, accepted: tuple[Mark, ...] = ()) -> MarkRecord:
    causes = tuple(MarkCause(mark, "gpu-lost", "gpu/0000:3b:00", "gpu", NOW) for mark in marks)
    charge = Charge("gpu-lost", marks[0], NOW) if marks else None
    return MarkRecord(causes, charge, accepted=AcceptedMarks("slurm", accepted) if accepted else None)


def test_the_first_webhook_that_matches_owns_a_node() -> None:
    owners = NodeOwners(
        [
            ("slurm", OwnedNodes("s-*")),
            ("ray", OwnedNodes(labels={"pool": "ray", "zone": "a"})),
            ("rest", OwnedNodes(labels={"pool": "ray"})),
        ]
    )
    ray = {"pool": "ray", "zone": "a", "other": "x"}
    assert owners.owner("s-1", ray) == "slurm"
    assert owners.owner("n-1", ray) == "ray"
    assert owners.owner("n-1", {"pool": "ray", "zone": "b"}) == "rest"
    assert owners.owner("n-1", {"pool": "train"}) == ""
    assert NodeOwners([("slurm", OwnedNodes())]).owner("any", {}) == "slurm"
    assert not NodeOwners()


@pytest.mark.parametrize(
    ("stored", "wanted", "accepted", "recorded", "in_effect", "is_final"),
    [
        # A mark is recorded before the receiver has it.
        (record(), record(Q), None, record(Q), {*()}, False),
        (record(Q), record(Q), frozenset({Q}), record(Q), {Q}, True),
        # A further kind that no other covers, too; the first stays in effect.
        (record(S, accepted=(S,)), record(Q), None, record(Q), {S}, False),
        # A release is recorded once it is accepted.
        (record(Q, accepted=(Q,)), record(), None, record(Q), {Q}, False),
        (record(Q, accepted=(Q,)), record(), frozenset({Q}), record(Q), {Q}, False),
        (record(Q, accepted=(Q,)), record(), frozenset[Mark](), record(), {*()}, True),
        # Also that of the worse of two kinds.
        (record(Q, accepted=(Q,)), record(S), frozenset({Q}), record(Q), {Q}, False),
        (record(Q, accepted=(Q,)), record(S), frozenset({S}), record(S), {S}, True),
        # A record that is read back after a takeover.
        (record(Q, accepted=(Q,)), record(Q), None, record(Q), {Q}, True),
        (record(Q), record(Q), None, record(Q), {*()}, False),
    ],
)
def test_what_is_recorded(
    stored: MarkRecord,
    wanted: MarkRecord,
    accepted: frozenset[Mark] | None,
    recorded: MarkRecord,
    in_effect: set[Mark],
    is_final: bool,
) -> None:
    owned = owned_record(stored, wanted, "slurm", accepted)
    assert (owned.record, owned.accepted, owned.is_final) == (recorded, frozenset(in_effect), is_final)
    assert accepted_kinds(owned.stored("slurm").accepted, "slurm") == in_effect


def test_an_acceptance_survives_as_text() -> None:
    text = encode_record(record(Q, accepted=(Q,)))
    assert decode_record(text) == record(Q, accepted=(Q,))
    assert "accepted" not in encode_record(record(Q))


def test_an_acceptance_of_another_webhook_or_of_an_unknown_kind_does_not_count() -> None:
    assert accepted_kinds(AcceptedMarks("ray", (Q,)), "slurm") == frozenset()
    assert accepted_kinds(AcceptedMarks("slurm", ("later-kind", Q)), "slurm") == {Q}
