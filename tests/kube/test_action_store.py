"""The store of actions on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodeguard.kube.action_store import KubernetesActionStore
from nodeguard.kube.client import ApiClient
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.action_store import ActionStoreError
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import ACTIONS_CRD, define_actions
from tests.kube.model_api import NAMESPACE, PATH
from tests.waiting import in_background

CLEAR = NodeAction(
    ActionKind.CLEAR, "gpu-1", "uid-1", "ann", 1_800_000_000, incident="i",
    findings=(FindingKey("gpu-lost", "node"),),
)  # fmt: skip
RUNNING = replace(CLEAR, state=ActionState.RUNNING, changed_at=1_800_000_010)
DONE = replace(
    RUNNING, state=ActionState.SUCCEEDED, carried_out=1, message="x" * 2000, changed_at=1_800_000_020
)


@pytest.fixture
def defined(controlplane: Cluster) -> Cluster:
    define_actions(controlplane)
    controlplane.api.delete(PATH)
    return controlplane


class Store(KubernetesActionStore):
    """A store that can wait for a change."""

    def __init__(self, api: ApiClient) -> None:
        self.event = asyncio.Event()
        super().__init__(api, NAMESPACE, self.event.set)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.event.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await self.event.wait()

    def states(self) -> list[ActionState]:
        return [action.state for action in self.actions()]


@asynccontextmanager
async def running_store(api: ApiClient) -> AsyncIterator[Store]:
    store = Store(api)
    async with in_background(store.run()):
        await store.until(store.is_synced)
        yield store


async def test_an_action_is_reserved_advanced_and_deleted_once(api: ApiClient, defined: Cluster) -> None:
    async with running_store(api) as first, running_store(api) as second:
        await asyncio.gather(first.reserve(CLEAR), second.reserve(CLEAR))
        assert list(first.actions()) == list(second.actions()) == [CLEAR]
        assert len(defined.api.get(PATH)["items"]) == 1
        other = replace(RUNNING, changed_at=1_800_000_011)
        await first.advance(CLEAR, RUNNING)
        await second.advance(CLEAR, other)
        await second.until(lambda: list(second.actions()) == [RUNNING])
        await second.advance(RUNNING, DONE)
        await first.advance(RUNNING, replace(RUNNING, state=ActionState.FAILED))
        stored = replace(DONE, message="x" * 1024)
        await first.until(lambda: list(first.actions()) == [stored])
        await first.delete(RUNNING)
        assert list(first.actions()) == [stored], "it is not as given"
        await first.delete(stored)
        await second.until(lambda: not second.actions())
    assert defined.api.get(PATH)["items"] == []


async def test_a_late_store_reads_what_others_have_changed(api: ApiClient, defined: Cluster) -> None:
    other = replace(CLEAR, request="2")
    first, late = Store(api), Store(api)
    for action in (CLEAR, other):
        await first.reserve(action)
        await late.reserve(action)
    await first.advance(CLEAR, RUNNING)
    await first.delete(other)
    assert list(late.actions()) == [CLEAR, other]
    await late.refresh()
    assert list(late.actions()) == list(first.actions()) == [RUNNING]


async def test_a_finding_of_any_report_can_be_cleared(api: ApiClient, defined: Cluster) -> None:
    longest = "x" * 256
    action = replace(CLEAR, findings=(FindingKey("", ""), FindingKey(longest, longest)))
    async with running_store(api) as store:
        await store.reserve(action)
        assert list(store.actions()) == [action]
        assert store.problem() == ""


async def test_a_stored_action_is_read_at_the_start(api: ApiClient, defined: Cluster) -> None:
    async with running_store(api) as store:
        await store.reserve(CLEAR)
        await store.advance(CLEAR, RUNNING)
    async with running_store(api) as store:
        assert list(store.actions()) == [RUNNING]
        defined.api.delete(f"{PATH}/{CLEAR.key}")
        await store.until(lambda: not store.actions())


async def test_its_content_does_not_change(api: ApiClient, defined: Cluster) -> None:
    async with running_store(api) as store:
        await store.reserve(CLEAR)
        with pytest.raises(Exception, match="an action does not change"):
            defined.api.patch(f"{PATH}/{CLEAR.key}", {"spec": {"request": "eve"}})


def _definition(change: Callable[[Any], object]) -> Any:
    definition = yaml.safe_load(ACTIONS_CRD.read_text())
    [version] = definition["spec"]["versions"]
    change(version["schema"]["openAPIV3Schema"]["properties"])
    return definition


async def test_an_older_definition_reserves_nothing(api: ApiClient, defined: Cluster) -> None:
    """It would drop the findings, and the action would have nothing to do."""
    older = _definition(lambda properties: properties["spec"]["properties"].pop("findings"))
    defined.api.apply([older])
    try:
        async with running_store(api) as store:
            async with asyncio.timeout(30):
                while not store.problem():
                    with suppress(ActionStoreError):
                        await store.reserve(CLEAR)
                        # The API server had not adopted the older definition.
                        defined.api.delete(f"{PATH}/{CLEAR.key}")
            assert "unknown field" in store.problem()
            assert "apply crd-nodeactions.yaml" in store.problem()
            assert defined.api.get(PATH)["items"] == []
            define_actions(defined)
            async with asyncio.timeout(30):
                while store.problem():
                    with suppress(ActionStoreError):
                        await store.reserve(CLEAR)
            await store.until(lambda: list(store.actions()) == [CLEAR])
    finally:
        define_actions(defined)


async def test_without_the_definition_the_problem_names_the_remedy(
    api: ApiClient, defined: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    defined.kubectl("delete", "-f", str(ACTIONS_CRD))
    monkeypatch.setattr("nodeguard.kube.action_store._DISCOVERY", 0.1)
    store = Store(api)
    try:
        async with in_background(store.run()):
            await store.until(lambda: bool(store.problem()))
            assert not store.is_synced()
            assert "apply crd-nodeactions.yaml" in store.problem()
            with pytest.raises(ActionStoreError, match=r"apply crd-nodeactions.yaml"):
                await store.reserve(CLEAR)
            define_actions(defined)
            await store.until(store.is_synced)
            assert store.problem() == ""
            await store.reserve(CLEAR)
    finally:
        define_actions(defined)
