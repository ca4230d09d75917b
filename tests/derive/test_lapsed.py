from __future__ import annotations

import pytest

from nodeguard.derive.lapsed import failing, lapsed, why
from nodeguard.derive.world import World, world
from nodeguard.model.observation import Observation, Reading, Status
from tests.derive.look import GPUS

LINK = f"{GPUS[0]}/nvlink/3"
KNOWN = {GPUS[0]: {"a": "", "b": ""}, LINK: {"c": ""}, GPUS[1]: {"a": ""}}
NOW = {GPUS[0]: ("a",), GPUS[1]: ("a",)}


def look(slot: str = "node", status: Status = "failed", source: str = "nvml") -> World:
    return world([Reading(source, 1, (Observation(source, slot, status, detail="late"),))], 1)


@pytest.mark.parametrize(
    ("slot", "status", "unread"),
    [
        ("node", "read", {}),
        ("node", "absent", {}),
        (GPUS[0], "hung", {GPUS[0]: {"b": GPUS[0]}, LINK: {"c": GPUS[0]}}),
        (LINK, "failed", {LINK: {"c": LINK}}),
        (GPUS[1], "failed", {}),
        ("node", "failed", {GPUS[0]: {"b": "nvml"}, LINK: {"c": "nvml"}}),
    ],
)
def test_what_vanishes_while_its_reading_fails_is_unread(
    slot: str, status: Status, unread: dict[str, dict[str, str]]
) -> None:
    seen = look(slot, status)
    assert lapsed(seen, KNOWN, NOW, ()) == unread
    assert all(why(seen, cause) == "late" for row in unread.values() for cause in row.values())


def test_what_failed_all_along_is_no_reason() -> None:
    seen = look(source="kmsg")
    assert lapsed(seen, KNOWN, NOW, failing(seen)) == {}


def test_what_lapsed_stays_so_until_its_own_reason_is_over() -> None:
    lost = {GPUS[0]: {"b": "nvml"}}
    assert lapsed(look(), lost, NOW, failing(look())) == lost
    assert lapsed(look(source="kmsg"), lost, NOW, ("kmsg", "nvml")) == {}
