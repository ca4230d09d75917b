from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.finding import Health
from nodeguard.model.target import NODE, probe_target, target_label
from nodeguard.sources.probe_file import (
    SIZE_LIMIT,
    ProbeFile,
    ProbeObservation,
    format_duration,
    parse_probe_file,
)

WRITTEN = "2027-01-15T08:00:00Z"
NOW = 1_800_000_000.0  # the same time
OK = {"name": "nccl", "health": "ok", "message": "12 GB/s between all pairs"}


def text(*observations: dict[str, Any], **file: Any) -> str:
    """Return a valid probe file with some fields replaced; None removes a field."""
    whole = {"written_at": WRITTEN, "valid_for": 900, "observations": list(observations) or [OK], **file}
    return json.dumps({name: value for name, value in whole.items() if value is not None})


def test_probe_file_has_the_results_of_its_probes() -> None:
    scratch = {"name": "write", "target": "fs:/scratch", "health": "suspect", "message": "EIO", "value": 3}
    assert parse_probe_file(text(OK, scratch), NOW) == ProbeFile(
        NOW,
        NOW + 900,
        (
            ProbeObservation("nccl", NODE, "ok", None, "12 GB/s between all pairs"),
            ProbeObservation("write", "fs:/scratch", "suspect", 3.0, "EIO"),
        ),
    )


def test_value_without_health_is_valid() -> None:
    [content] = parse_probe_file(
        text({"name": "bandwidth", "value": 11.5, "message": "GB/s"}), NOW
    ).observations
    assert (content.health, content.value) == (None, 11.5)


def test_until_accepts_an_rfc_3339_time() -> None:
    until = text(valid_for=None, until="2027-01-15T10:10:00+02:00")
    assert parse_probe_file(until, NOW).until == NOW + 600


def test_target_may_have_the_pci_address_format_of_the_driver() -> None:
    [content] = parse_probe_file(text({**OK, "target": "gpu/00000000:3B:00.0"}), NOW).observations
    assert content.target == "gpu/0000:3b:00"


def test_small_clock_difference_is_accepted() -> None:
    assert not parse_probe_file(text(), NOW - 59).defects


@pytest.mark.parametrize(
    ("content", "defect"),
    [
        ("", "is not JSON (Input data was truncated): write it whole, then rename it into place"),
        (text()[:40], "is not JSON (Input data was truncated): write it whole, then rename it into place"),
        ("[" * 50_000, "is not JSON"),
        ("[]", "a list does not fit: write a mapping"),
        (text(a=" " * SIZE_LIMIT), "is larger than 64 KiB: write less, or write several files"),
        (text(written_at=None), "written_at: is missing: add it"),
        (text(observations=None), "observations: is missing: add it"),
        (text(observations=[]), "observations: a list does not fit: write a list of length >= 1"),
        (text(*[OK] * 33), "observations: a list does not fit: write a list of length <= 32"),
        (text(host="a"), "host: is not known here: use one of written_at, observations, valid_for, until"),
        (text(written_at=NOW), "written_at: 1800000000.0 does not fit: write text"),
        (
            text(written_at="today"),
            "written_at: 'today' is not an RFC 3339 timestamp: write it like 2026-11-01T12:00:00Z",
        ),
        (
            text(written_at="2027-01-15T11:00:00Z"),
            "written_at: is 3 h in the future: write the time of writing, with its offset from UTC",
        ),
        (text(valid_for=None), "valid_for: is missing: write either valid_for, in seconds, or until"),
        (
            text(until=WRITTEN),
            "valid_for: is used together with until: write either valid_for, in seconds, or until",
        ),
        (text(valid_for=0), "valid_for: 0 does not fit: write a number > 0.0"),
        (text(valid_for=700_000), "valid_for: 700000 does not fit: write a number <= 604800.0"),
        (
            text(valid_for=None, until=WRITTEN),
            "until: is not after written_at, or too long after it: write a time within 7 days of it",
        ),
        (
            text(valid_for=None, until="soon"),
            "until: 'soon' is not an RFC 3339 timestamp: write it like 2026-11-01T12:00:00Z",
        ),
    ],
)
def test_invalid_file_has_a_defect(content: str, defect: str) -> None:
    parsed = parse_probe_file(content, NOW)
    assert len(parsed.defects) == 1
    assert parsed.defects[0].startswith(defect)
    assert not parsed.observations


@pytest.mark.parametrize(
    ("wrong", "defect"),
    [
        ({"name": None}, "name: nothing does not fit: write text"),
        (
            {"name": "NCCL test"},
            "name: 'NCCL test' is not a valid name: use small letters, digits and hyphens",
        ),
        ({"name": "-"}, "name: '-' is not a valid name: use small letters, digits and hyphens"),
        ({"health": "bad"}, "health: 'bad' is not valid: use one of ok, warning, suspect, fatal"),
        ({"health": None}, "health: nothing does not fit: write text"),
        (
            {"message": "two\nlines"},
            "message: is more than one line: write one sentence, without tabs and colours",
        ),
        ({"message": ""}, "message: '' does not fit: write text of length >= 1"),
        (
            {"target": "gpu"},
            "target: 'gpu' is not a valid target: write it like gpu/0000:3b:00 or fs:/scratch",
        ),
        (
            {"target": "cabinet/7"},
            "target: 'cabinet/7' is not a valid target: write it like gpu/0000:3b:00 or fs:/scratch",
        ),
        (
            {"target": "nvlink/3"},
            "target: 'nvlink/3' is not a valid target: write it like gpu/0000:3b:00 or fs:/scratch",
        ),
        (
            {"target": "probe/x"},
            "target: 'probe/x' is not a valid target: write it like gpu/0000:3b:00 or fs:/scratch",
        ),
        (
            {"target": "fs:"},
            "target: 'fs:' is not a valid target: write it like gpu/0000:3b:00 or fs:/scratch",
        ),
        ({"value": True}, "value: True does not fit: write a number"),
        ({"name": "other"}, "name: 'other' reports on node twice: give one of them another name"),
        (
            {"heath": "ok"},
            "heath: is not known here: use one of name, message, target, health, value; did you mean health?",
        ),
    ],
)
def test_invalid_observation_does_not_affect_the_others(wrong: dict[str, Any], defect: str) -> None:
    parsed = parse_probe_file(text({**OK, "name": "other"}, {**OK, **wrong}), NOW)
    assert parsed.defects == (f"observations[1].{defect}",)
    assert [observation.name for observation in parsed.observations] == ["other"]


def test_observation_requires_health_or_a_value() -> None:
    parsed = parse_probe_file(text({"name": "a", "message": "b"}), NOW)
    assert parsed.defects == (
        "observations[0].health: is missing: write health, or a value for a check of your own",
    )


@pytest.mark.parametrize("wrong", [{"written_at": "x" * 9000}, {"x" * 9000: 1}, {"valid_for": "x" * 9000}])
def test_message_of_a_defect_is_short(wrong: dict[str, Any]) -> None:
    [defect] = parse_probe_file(text(**wrong), NOW).defects
    assert len(defect) < 400


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (900_000, "10 d")]
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(WRITTEN)
JSON = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(), SCALARS, max_size=3)
FIELDS = st.sampled_from(["written_at", "valid_for", "until", "observations", "x"])
OBSERVATION = st.sampled_from(["name", "target", "health", "value", "message", "x"])


@given(
    st.dictionaries(FIELDS, JSON, max_size=2),
    st.dictionaries(OBSERVATION, JSON | st.sampled_from(["gpu/a/nvlink/b", "port/a/1"]), max_size=3),
)
def test_any_file_has_observations_or_defects(file: dict[str, Any], observation: dict[str, Any]) -> None:
    parsed = parse_probe_file(json.dumps({**json.loads(text({**OK, **observation})), **file}), NOW)
    assert parsed.observations or parsed.defects
    for result in parsed.observations:
        assert result.health in {None, *(state.value for state in Health)}
        assert result.value is None or math.isfinite(result.value)
        assert target_label(probe_target(result.name, result.target))
    assert all(": " in defect for defect in parsed.defects)


@given(st.text())
def test_any_text_has_defects(content: str) -> None:
    assert parse_probe_file(content, NOW).defects
