from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from nodeguard.kube.node_patch import condition_patch
from nodeguard.model.instant import parse_or_zero, rfc3339
from nodeguard.model.node import Node, NodeCondition

NOW = 1_800_000_000.0
THEN = "2027-01-15T08:00:00Z"
UNWELL = NodeCondition("False", "GpuLost", "GPU 0000:3b:00 fell off the bus")
NODE = Node("gpu-7", "u7", "41")


def test_a_first_condition_is_a_transition() -> None:
    assert condition_patch(NODE, UNWELL, NOW) == {
        "metadata": {"uid": "u7"},
        "status": {
            "conditions": [
                {
                    "type": "NodeguardHealthy",
                    "status": "False",
                    "reason": "GpuLost",
                    "message": "GPU 0000:3b:00 fell off the bus",
                    "lastHeartbeatTime": THEN,
                    "lastTransitionTime": THEN,
                }
            ]
        },
    }


@pytest.mark.parametrize(
    ("status", "reason", "written", "is_transition"),
    [
        ("False", "GpuLost", False, False),
        ("False", "LinkDown", True, False),
        ("True", "GpuLost", True, True),
        ("Unknown", "NotHeard", True, True),
    ],
)
def test_a_transition_is_a_change_of_status(
    status: str, reason: str, written: bool, is_transition: bool
) -> None:
    patch = condition_patch(
        replace(NODE, condition=UNWELL), NodeCondition(status, reason, "other words"), NOW
    )
    assert (patch is not None) == written
    if patch is not None:
        (one,) = patch["status"]["conditions"]
        assert ("lastTransitionTime" in one) == is_transition


def test_other_causes_are_written_and_other_readings_are_not() -> None:
    hot = NodeCondition(
        "False", "Quarantined", "GPU 1 has 91 °C. Details: nodeguard describe node gpu-7 (gpu-hot on GPU 1)."
    )
    node = replace(NODE, condition=hot)
    assert condition_patch(node, replace(hot, message=hot.message.replace("91", "92")), NOW) is None
    also = replace(hot, message="GPU 1 has 91 °C. Details: nodeguard describe node gpu-7 (gpu-ecc on GPU 1).")
    patch = condition_patch(node, also, NOW)
    assert patch is not None
    assert patch["status"]["conditions"][0]["message"] == also.message


def test_a_long_message_keeps_where_to_read_more() -> None:
    patch = condition_patch(NODE, replace(UNWELL, message=f"{'x' * 9999} Details: see there"), NOW)
    assert patch is not None
    message = patch["status"]["conditions"][0]["message"]
    assert len(message) == 1024
    assert message.endswith("x… Details: see there")


def test_a_long_message_is_not_written_twice() -> None:
    for message in (f"{'x' * 9999} Details: see there", f"x Details: {'y' * 9999}", "x" * 9999):
        wanted = replace(UNWELL, message=message)
        patch = condition_patch(NODE, wanted, NOW)
        assert patch is not None
        [written] = patch["status"]["conditions"]
        node = replace(NODE, condition=replace(wanted, message=written["message"]))
        assert condition_patch(node, wanted, NOW) is None


def test_a_condition_is_taken_away_where_there_is_one() -> None:
    gone = NodeCondition("", "")
    assert condition_patch(NODE, gone, NOW) is None
    assert condition_patch(replace(NODE, condition=UNWELL), gone, NOW) == {
        "metadata": {"uid": "u7"},
        "status": {"conditions": [{"$patch": "delete", "type": "NodeguardHealthy"}]},
    }


def test_a_message_is_cut() -> None:
    patch = condition_patch(NODE, replace(UNWELL, message="x" * 9999), NOW)
    assert patch is not None
    assert len(patch["status"]["conditions"][0]["message"]) == 1024


@pytest.mark.parametrize(
    ("moment", "text"),
    [(NOW, THEN), (NOW + 0.9, THEN), (-5.0, "1970-01-01T00:00:00Z"), (inf, "9999-12-31T23:59:59Z")],
)
def test_moments_are_written_to_the_second(moment: float, text: str) -> None:
    assert rfc3339(moment) == text


@pytest.mark.parametrize(
    ("text", "moment"), [(THEN, NOW), ("", 0.0), ("soon", 0.0), ("2027-01-15T08:00:00", 0.0)]
)
def test_moments_are_read(text: str, moment: float) -> None:
    assert parse_or_zero(text) == moment
