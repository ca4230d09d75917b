from __future__ import annotations

import pytest

from nodeguard.derive.lapsed import lapsed
from nodeguard.derive.world import world
from nodeguard.model.observation import Observation, Reading, Status
from tests.derive.look import GPUS

LINK = f"{GPUS[0]}/nvlink/3"
KNOWN = {GPUS[0]: ("a", "b"), LINK: ("c",), GPUS[1]: ("a",)}


@pytest.mark.parametrize(
    ("slot", "status", "unread"),
    [
        ("node", "read", {}),
        ("node", "absent", {}),
        (GPUS[0], "hung", {GPUS[0]: {"b": "late"}, LINK: {"c": "late"}}),
        (LINK, "failed", {LINK: {"c": "late"}}),
        (GPUS[1], "failed", {}),
        ("node", "failed", {GPUS[0]: {"b": "late"}, LINK: {"c": "late"}}),
    ],
)
def test_what_vanishes_while_its_reading_fails_is_unread(
    slot: str, status: Status, unread: dict[str, dict[str, str]]
) -> None:
    look = world([Reading("nvml", 1, (Observation("nvml", slot, status, detail="late"),))], 1)
    assert lapsed(look, KNOWN, {GPUS[0]: ("a",), GPUS[1]: ("a",)}) == unread
