"""Responses to evictions that a real API server rarely gives; tests/kube/test_drain_cluster.py has the others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from msgspec.structs import replace
from yarl import URL

from nodeguard.kube.client import ApiClient
from nodeguard.kube.errors import ApiError, response_error
from nodeguard.kube.eviction import KubernetesDrainCluster, eviction_state, retry_wait
from nodeguard.kube.fenced_client import FencedClient
from nodeguard.model.eviction import Eviction, EvictionState, PodReadError
from nodeguard.model.pod import NodePod, PodKey
from tests.controlplane.certificates import Authority
from tests.controlplane.credentials import write_kubeconfig

POD = NodePod(PodKey("team-a", "train-0", "uid-0"), "812")
EMPTY = b'{"metadata": {"resourceVersion": "9"}, "items": []}'
CLAIMED = replace(POD, claims=("gpus",))
REQUEST = "POST /api/v1/namespaces/team-a/pods/train-0/eviction"


def error(code: int, body: object, headers: dict[str, str] | None = None) -> ApiError:
    """Return the error of a response. body: a Status, or text."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return response_error(code, "", headers or {}, content, REQUEST)


def status(code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, **more}


def test_a_disruption_budget_that_forbids_is_not_a_limit_of_requests() -> None:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b1 needs 2 healthy pods and has 2",
    }
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    refused = error(
        429, status(429, text, reason="TooManyRequests", details={"causes": [cause], "retryAfterSeconds": 10})
    )
    assert eviction_state(refused) == EvictionState.REFUSED
    assert refused.message.endswith(cause["message"])
    limited = error(429, "Too many requests, please try again later.", {"Retry-After": "1"})
    assert eviction_state(limited) == EvictionState.FAILED
    assert limited.message.endswith("the server limits requests; nodeguard retries")


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [
        (error(429, "Too many requests, please try again later.", {"Retry-After": "7"}), 7.0),
        (error(429, status(429, "too many", details={"retryAfterSeconds": 9})), 9.0),
        (error(429, "", {"Retry-After": "3600"}), 60.0),
        (error(429, "", {"Retry-After": "9" * 400}), 60.0),
        (error(503, "", {"Retry-After": "Mon, 30 Nov 2026 05:00:00 GMT"}), 1.0),
        # A webhook refuses: a server that limits requests names the time of the next one.
        (error(429, status(429, 'admission webhook "w" denied the request: it migrates')), 0.0),
        (error(503, "shutting down", {"Retry-After": "2"}), 2.0),
        (error(500, status(500, "failed calling webhook")), 1.0),
        (ApiError(0, "Unreachable", ""), 1.0),
        (
            error(
                429, status(429, "no", details={"causes": [{"reason": "DisruptionBudget", "message": "b1"}]})
            ),
            0.0,
        ),
        (
            error(
                429,
                status(
                    429,
                    "no",
                    details={
                        "causes": [{"reason": "DisruptionBudget", "message": "b1"}],
                        "retryAfterSeconds": 10,
                    },
                ),
            ),
            10.0,
        ),
        (error(500, status(500, "This pod has more than one PodDisruptionBudget")), 0.0),
        (error(403, status(403, "forbidden", details={})), 0.0),
        (error(404, "404 page not found"), 0.0),
        (error(409, status(409, "Conflict")), 0.0),
        (ApiError(0, "TooLarge", ""), 0.0),
    ],
)
def test_a_request_is_sent_again_after_the_time_that_the_server_asks_for(
    failure: ApiError, seconds: float
) -> None:
    assert retry_wait(failure) == seconds


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (error(500, status(500, "etcdserver: request timed out")), EvictionState.UNKNOWN),
        (error(503, "upstream connect error"), EvictionState.UNKNOWN),
        (error(504, status(504, "request did not complete within the timeout")), EvictionState.UNKNOWN),
        (ApiError(0, "Timeout", ""), EvictionState.UNKNOWN),
        (ApiError(0, "Disconnected", ""), EvictionState.UNKNOWN),
        (ApiError(0, "Unreachable", ""), EvictionState.FAILED),
        (ApiError(0, "Access", ""), EvictionState.FAILED),
        (error(401, status(401, "Unauthorized")), EvictionState.FAILED),
        (error(422, status(422, "invalid")), EvictionState.FAILED),
    ],
    ids=lambda value: f"{value.status}-{value.reason}" if isinstance(value, ApiError) else "",
)
def test_an_eviction_is_unknown_if_it_may_have_been_carried_out(
    failure: ApiError, state: EvictionState
) -> None:
    assert eviction_state(failure) == state


async def test_without_the_lease_nothing_is_read_or_evicted(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:9", Authority(tmp_path).certificate, "token")
    api = await ApiClient.connect(str(kubeconfig))
    client = FencedClient(api, 1, may_write=lambda: False, seconds_left=lambda: 9.0, renewals=lambda: 1)
    pods = KubernetesDrainCluster(client)
    reason = "this aggregator may not write now: it does not hold the lease"
    try:
        assert await pods.evict(POD, is_dry_run=False) == Eviction(EvictionState.FAILED, reason, 1.0)
        with pytest.raises(PodReadError, match=reason):
            await pods.node_pods("gpu-1")
        with pytest.raises(PodReadError, match=reason):
            await pods.disruption_budgets("team-a")
        with pytest.raises(PodReadError, match=reason):
            await pods.with_claims("gpu-1", (CLAIMED,))
    finally:
        await api.close()


class _Responses:
    """The client of an API server with some responses, by the last word of the path."""

    def __init__(self, **responses: bytes | ApiError) -> None:
        self._responses = responses

    async def read(self, path: str, *_: object, **__: object) -> bytes:
        response = self._responses[path.rpartition("/")[2]]
        if isinstance(response, ApiError):
            raise response
        return response


async def with_claims(**responses: bytes | ApiError) -> tuple[NodePod, ...]:
    client: Any = _Responses(**responses)
    return await KubernetesDrainCluster(client).with_claims("gpu-1", (CLAIMED,))


@pytest.mark.parametrize("name", ["../../../../../api/v1/secrets", "train?watch=true", ".."])
async def test_a_job_that_an_owner_reference_names_is_no_other_path(name: str) -> None:
    """The API server takes any text as the name of an owner."""
    requests = _Requests()
    client: Any = requests
    with pytest.raises(PodReadError):
        await KubernetesDrainCluster(client).job_retries("team-a", name)
    for path in requests.paths:
        prefix, _, quoted = URL(f"https://server{path}").raw_path.rpartition("/")
        assert (prefix, unquote(quoted)) == ("/apis/batch/v1/namespaces/team-a/jobs", name)


async def test_claims_are_unknown_on_a_server_without_their_stable_version() -> None:
    missing = error(404, "404 page not found")
    assert await with_claims(resourceslices=missing) == (CLAIMED,)


@pytest.mark.parametrize(
    ("slices", "claim", "reason"),
    [
        (error(503, "upstream connect error"), b"", "503"),
        (
            b'{"metadata": {"resourceVersion": "9"}, "items": 7}',
            b"",
            "the ResourceSlices of Node gpu-1 could not be read",
        ),
        (EMPTY, error(504, "timed out"), "504"),
        (EMPTY, b"<html>", "ResourceClaim team-a/gpus could not be read"),
    ],
)
async def test_claims_that_cannot_be_read_are_an_error(
    slices: bytes | ApiError, claim: bytes | ApiError, reason: str
) -> None:
    with pytest.raises(PodReadError, match=reason):
        await with_claims(resourceslices=slices, gpus=claim)


class _Requests:
    """A client of a server that has no slices, and fails for each claim."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def read(self, path: str, *_: object, **__: object) -> bytes:
        self.paths.append(path)
        await asyncio.sleep(0)
        if path.endswith("resourceslices"):
            return EMPTY
        raise error(504, "timed out")


@pytest.mark.parametrize(
    ("number", "reason", "requests"),
    [
        (1_000, "504", 9),
        (1_001, "the pods of Node gpu-1 name 1001 ResourceClaims, and a drain reads at most 1000", 0),
    ],
)
async def test_claims_cost_few_requests_of_a_server_that_fails(
    number: int, reason: str, requests: int
) -> None:
    client: Any = _Requests()
    pod = replace(POD, claims=tuple(f"gpu-{index}" for index in range(number)))
    with pytest.raises(PodReadError, match=reason):
        await KubernetesDrainCluster(client).with_claims("gpu-1", (pod,))
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    assert len(client.paths) == requests
