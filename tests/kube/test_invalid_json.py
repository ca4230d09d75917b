"""Responses of a Kubernetes API, or of a proxy before it, that no decoder accepts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nodeguard.kube.action_object import decode_action
from nodeguard.kube.device_rules import decode_rule
from nodeguard.kube.devices import decode_gpu_ids
from nodeguard.kube.disruption_budgets import decode_budgets
from nodeguard.kube.errors import response_error
from nodeguard.kube.gpu_pods import decode_page
from nodeguard.kube.incident_object import decode_incident
from nodeguard.kube.node_patch import is_cordon_recorded
from nodeguard.kube.node_pods import jobs_of_pods
from nodeguard.kube.nodes import decode_node
from nodeguard.kube.objects import RawList
from nodeguard.model.json_decoder import JsonDecoder

DEEP = b'{"unread":' + b"[" * 100_000


# The JSON of a proxy or of another server: taken for a list, no pod would be left, or no budget would protect one.
@pytest.mark.parametrize("body", [b"{}", b'{"status": "ok"}', b'{"metadata": {}, "items": []}'])
@pytest.mark.parametrize(
    "decode", [decode_page, decode_budgets, decode_gpu_ids, jobs_of_pods, JsonDecoder(RawList).decode]
)
def test_an_object_without_a_version_is_no_empty_list(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match=r"metadata|resourceVersion"):
        decode(body)


@pytest.mark.parametrize("decode", [decode_action, decode_incident, decode_node, decode_rule])
@pytest.mark.parametrize("body", [DEEP, b'{"metadata": {"name": "\xff"}}'])
def test_an_object_is_unreadable(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(body)


def test_the_error_of_a_response_has_its_status() -> None:
    assert response_error(502, "Bad Gateway", {}, DEEP, "GET /api").status == 502


def test_a_state_that_was_edited_records_no_cordon() -> None:
    assert not is_cordon_recorded(DEEP.decode())
