"""Values of the label `check`: names of the catalogue have their own, and forged ones do not grow without bound."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.aggregator.mark_counter import MarkCounter
from nodeguard.aggregator.metric_families import CheckLabels
from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause, MarkRecord
from tests.fleet.scene import CHECKS, Fleet, finding


def test_forged_names_take_no_value_of_the_catalogue() -> None:
    labels = CheckLabels()
    values = {labels.label(f"forged-{number}", CHECKS) for number in range(1_000)}
    assert "other" in values
    assert len(values) < 200
    assert [labels.label(check, CHECKS) for check in ("", *CHECKS)] == ["", *CHECKS]


def test_a_record_with_more_and_more_checks_grows_no_counter() -> None:
    made, counter = Fleet(4), MarkCounter()
    for number in range(300):
        check = f"forged-{number}"
        cause = MarkCause(Mark.QUARANTINE, check, "node", "gpu", made.wall)
        record = encode_record(MarkRecord((cause,), Charge(check, Mark.QUARANTINE, made.wall)))
        made.see(replace(made.nodes["uid-0"], annotations={STATE_ANNOTATION: record}))
        made.after(2.0)
        counter.plan_made(made.planner, made.plan(), made.now, acts=True)
    made.report(1, finding())
    made.carry_out()
    made.after(2.0)
    counter.plan_made(made.planner, made.plan(), made.now, acts=True)
    assert len(counter.set_marks) < 200
    assert counter.set_marks["quarantine", "gpu-lost", False] == 1
