"""Marks that another client removes while only the condition of their Node is being written."""

from __future__ import annotations

from tests.fleet.scene import Fleet, finding


def test_a_mark_is_set_again_after_another_client_removed_it_with_its_record() -> None:
    made = Fleet(4)
    made.report(0, finding())
    made.carry_out()
    made.change(0, condition=None)
    [write] = made.issue().nodes
    # The executor finds the marks on the Node.
    made.planner.record_written(write.uid, write.record)
    made.change(0, annotations={}, taints=())
    made.after(1.0)
    made.carry_out()
    assert made.marked() == [0]
