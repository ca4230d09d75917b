"""The record of what a served definition does not store, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from nodeguard.kube.incident_object import IncidentStatus
from nodeguard.kube.incident_projection import incident_status
from nodeguard.kube.stored_fields import StoredFields
from nodeguard.model.incident import Incident, IncidentState
from tests.contracts.filled import filled

NAME = "gpu-lost-3f2a"
STATUS = incident_status(
    filled(Incident, {"state": (IncidentState.MARKED, IncidentState.OPEN), "target": ("gpu/1b:00", "node")})
)
SENT: dict[str, Any] = msgspec.to_builtins(STATUS)


def paths(content: Any, path: str = "status") -> Iterator[str]:
    """Every path of a status as the API server names it, of parts as well as of values."""
    if isinstance(content, Mapping):
        parts = [(f"{path}.{name}", part) for name, part in content.items()]
    elif isinstance(content, list):
        parts = [(f"{path}[{number}]", part) for number, part in enumerate(content)]
    else:
        parts = []
    for name, part in parts:
        if part is not None:
            yield name
            yield from paths(part, name)


@pytest.mark.parametrize("path", sorted(paths(SENT)))
def test_what_is_refused_is_left_out_and_then_what_needs_it(path: str) -> None:
    stored = StoredFields()
    sent = stored.to_send(NAME, STATUS)
    assert sent == SENT
    # A server may refuse the rest again, because the value is required. Each step leaves more out.
    for _ in range(path.count(".") + path.count("[")):
        before = sent
        if not stored.record_refusal(NAME, sent, (path,)):
            break
        sent = stored.to_send(NAME, STATUS)
        assert sent != before
    top = path.removeprefix("status.").partition(".")[0].partition("[")[0]
    assert not sent[top]
    assert {key: part for key, part in sent.items() if key != top} == {
        key: part for key, part in SENT.items() if key != top
    }
    assert stored.to_send("another", STATUS) == SENT
    stored.forget(NAME)
    assert stored.to_send(NAME, STATUS) == SENT


@pytest.mark.parametrize("fields", [(), ("<nil>",), ("metadata.name",), ("status.nowhere",), ("status",)])
def test_a_refusal_of_something_else_is_no_reason_to_write_again(fields: tuple[str, ...]) -> None:
    assert not StoredFields().record_refusal(NAME, SENT, fields)


def without(path: str) -> IncidentStatus:
    """The status without one of its top fields, as an older definition stores it."""
    return msgspec.convert({key: part for key, part in SENT.items() if key != path}, IncidentStatus)


def test_a_dropped_field_is_left_out_of_comparisons_and_no_other() -> None:
    stored = StoredFields()
    assert not stored.is_stored(NAME, without("hardware"), STATUS)
    stored.record_response(SENT, without("hardware"))
    assert stored.is_stored(NAME, without("hardware"), STATUS)
    assert not stored.is_stored(NAME, without("scope"), STATUS)
    stored.record_response(SENT, STATUS)
    assert not stored.is_stored(NAME, without("hardware"), STATUS)


def test_a_value_that_comes_back_changed_is_not_dropped() -> None:
    stored = StoredFields()
    changed = msgspec.convert({**SENT, "message": "changed by an admission webhook"}, IncidentStatus)
    stored.record_response(SENT, changed)
    assert not stored.is_stored(NAME, changed, STATUS)
