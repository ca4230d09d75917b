"""Responses of a Kubernetes API, or of a proxy before it, that no decoder accepts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nodeguard.kube.action_object import decode_action
from nodeguard.kube.device_rules import decode_rule
from nodeguard.kube.errors import response_error
from nodeguard.kube.incident_object import decode_incident
from nodeguard.kube.node_patch import is_cordon_recorded
from nodeguard.kube.nodes import decode_node

DEEP = b'{"unread":' + b"[" * 100_000


@pytest.mark.parametrize("decode", [decode_action, decode_incident, decode_node, decode_rule])
@pytest.mark.parametrize("body", [DEEP, b'{"metadata": {"name": "\xff"}}'])
def test_an_object_is_unreadable(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(body)


def test_the_error_of_a_response_has_its_status() -> None:
    assert response_error(502, "Bad Gateway", {}, DEEP, "GET /api").status == 502


def test_a_state_that_was_edited_records_no_cordon() -> None:
    assert not is_cordon_recorded(DEEP.decode())
