from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.executors.advice.advised_marks import advised_marks
from nodeguard.model.decision import NodeDecision
from nodeguard.model.inventory import NO_OBSERVED_MARKS
from nodeguard.model.mark import Charge, Mark, MarkCause, MarkRecord, NodeMarks
from nodeguard.model.policy import MarkWrites

RECORD = MarkRecord(
    (MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", 1.0),), Charge("gpu-lost", Mark.QUARANTINE, 1.0)
)
KINDS = frozenset({Mark.QUARANTINE})
MARKED, UNMARKED = (NodeDecision("n", "n", NodeMarks(record)) for record in (RECORD, MarkRecord()))


def test_a_mark_is_present_and_in_effect_unless_the_policy_sets_none() -> None:
    shown = advised_marks(MARKED, NO_OBSERVED_MARKS, MarkWrites(), out_by_operator=False)
    assert (shown.records, shown.present, shown.in_effect) == (MARKED.records, KINDS, KINDS)
    recorded = advised_marks(MARKED, NO_OBSERVED_MARKS, MarkWrites(taint=False), out_by_operator=False)
    assert (recorded.records, recorded.present) == (MARKED.records, frozenset())
    assert advised_marks(UNMARKED, shown, MarkWrites(), out_by_operator=False) == NO_OBSERVED_MARKS


@pytest.mark.parametrize(("out_by_operator", "is_out"), [(False, True), (True, False)])
def test_a_cordon_begins_with_the_mark_if_there_is_none(*, out_by_operator: bool, is_out: bool) -> None:
    writes = MarkWrites(cordon=True)
    shown = advised_marks(MARKED, NO_OBSERVED_MARKS, writes, out_by_operator=out_by_operator)
    assert shown.is_out == is_out
    again = advised_marks(MARKED, replace(shown, is_out=False), writes, out_by_operator=False)
    assert not again.is_out, "an operator has removed it"
    assert not advised_marks(UNMARKED, shown, writes, out_by_operator=out_by_operator).is_out
