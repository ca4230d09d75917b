"""The cordon: an executor keeps all new work away beside its marks, where the policy asks for it. Pure."""

from __future__ import annotations

from nodeguard.fleet.state.unknown_marks import unknown_kinds
from nodeguard.model.mark import MarkRecord
from nodeguard.model.policy import MarkWrites


def is_cordoned_after(
    observed: MarkRecord, record: MarkRecord, writes: MarkWrites, *, is_ours: bool, is_out: bool
) -> bool:
    """Return whether a node has a cordon of nodeguard once a record is carried out.

    observed: its record now. is_ours: whether it has such a cordon now; is_out: whether it has any.

    A cordon is set when a mark with one begins, if there is none yet. If an operator has removed it, it is
    not set again.
    """
    cordons, did = (any(mark.kind.cordons for mark in marks.marks) for marks in (record, observed))
    if writes.cordon and cordons and not did and not is_out:
        return True
    # A mark of an unknown kind may need the cordon.
    return is_ours and (cordons or bool(unknown_kinds(record)))
