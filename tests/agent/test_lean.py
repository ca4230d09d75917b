from __future__ import annotations

from nodeguard.agent.state import shrink_steps
from nodeguard.derive.references import BestReadings
from nodeguard.derive.state import DeriveState
from nodeguard.judge.state import ActiveFinding, JudgeState, OperatorClear, TargetState
from nodeguard.model.finding import Health
from nodeguard.model.observation import Observation, Reading
from nodeguard.model.target import NODE
from tests.judge.scene import finding

PROBE, MOUNT, GPU, OTHER = "probe/a", "fs:/x", "gpu/0000:1b:00", "gpu/0000:43:00"
SICK = TargetState(first_seen=0.0, active={"one": ActiveFinding(0.0, finding(health=Health.FATAL))})
WELL = TargetState(first_seen=0.0)
WORD = OperatorClear("one", GPU, "", 1.0, "ann")


def test_what_anybody_can_name_goes_first_then_what_is_read_again_then_what_is_well() -> None:
    row = Reading("a", 1.0, tuple(Observation("a", slot) for slot in (PROBE, MOUNT, GPU)))
    best = {slot: BestReadings("", {"a.b": 1.0}) for slot in (MOUNT, GPU)}
    slots = {PROBE: SICK, MOUNT: SICK, NODE: WELL, OTHER: WELL, GPU: SICK}
    steps = list(
        shrink_steps(
            DeriveState("boot", latest={"a": row}, best=best), JudgeState("boot", slots, cleared=(WORD,))
        )
    )
    kept = [set(judged.targets) for _, judged in steps]
    assert kept[:3] == [{MOUNT, NODE, OTHER, GPU}, {NODE, OTHER, GPU}, {NODE, OTHER, GPU}]
    assert kept[3:] == [{GPU}, set(), set()]
    read = [
        {one.target for reading in derived.latest.values() for one in reading.observations}
        for derived, _ in steps
    ]
    assert read[:3] == [{MOUNT, GPU}, {GPU}, set()]
    assert [set(derived.best) for derived, _ in steps][1:3] == [{GPU}, {GPU}]
    assert all(judged.cleared == (WORD,) for _, judged in steps), "people's words stay to the end"
