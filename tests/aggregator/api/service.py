"""The API of a planner at a real socket, with recorded operator actions."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.server import serve_api
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.fleet.act.drain_report import DrainReport
from nodeguard.fleet_api.service_state import ServiceState
from nodeguard.model.action import NodeAction
from nodeguard.model.action_store import ActionStoreError
from nodeguard.model.eviction import DrainCluster
from nodeguard.model.incident import ClearAnswer, FalseAlarm, OperatorDecision
from nodeguard.model.policy import Policy
from tests.fleet.scene import AT_ONCE, Fleet, finding
from tests.waiting import PATIENCE


class RecordingActions:
    """Operator actions that are recorded, and the store of node actions. error: with which every action is refused,
    empty for none.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.reserved: list[NodeAction] = []
        self.drains: tuple[DrainReport, ...] = ()
        self.drain_cluster: DrainCluster | None = None
        self.error = ""
        self.decisions: dict[str, OperatorDecision] = {}
        # The next answers of an agent to a clear.
        self.answers: list[tuple[ClearAnswer, str]] = []

    def _record(self, *call: str) -> str:
        if self.error:
            raise OperatorActionError(self.error)
        self.calls.append(call)
        return f"Done: {call[0]}."

    async def pause(self, reason: str, by: str) -> str:
        return self._record("pause", reason, by)

    async def resume(self, by: str) -> str:
        return self._record("resume", by)

    async def unmark(self, by: str) -> str:
        return self._record("unmark", by)

    async def unmark_nodes(self, nodes: Sequence[str], reason: str, by: str) -> str:
        return self._record("unmark", *nodes, reason, by)

    async def acknowledge(self, name: str, by: str) -> str:
        return self._record("acknowledge", name, by)

    async def clear(self, name: str, by: str) -> str:
        if self.answers:
            self.decisions[name] = OperatorDecision(name, clear=f"{by} at noon")
        return self._record("clear", name, by)

    async def record_false_alarm(self, name: str, statement: FalseAlarm) -> str:
        verb = "withdraw" if statement.withdrawn else "false alarm"
        return self._record(verb, name, statement.by, statement.reason)

    def is_synced(self) -> bool:
        return True

    def problem(self) -> str:
        return self.error

    def actions(self) -> list[NodeAction]:
        return self.reserved

    async def reserve(self, action: NodeAction) -> None:
        if self.error:
            raise ActionStoreError(self.error)
        self.reserved.append(action)

    async def advance(self, before: NodeAction, after: NodeAction) -> None:
        raise AssertionError((before, after))

    async def refresh(self) -> None:
        pass

    async def delete(self, action: NodeAction) -> None:
        raise AssertionError(action)

    def current_decisions(self) -> dict[str, OperatorDecision]:
        """Return the decisions with the next answer to each clear."""
        if self.decisions and self.answers:
            answer, message = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return {
                name: replace(decision, answer=answer, answer_message=message)
                for name, decision in self.decisions.items()
            }
        return self.decisions


def service_state(fleet: Fleet, actions: RecordingActions) -> ServiceState:
    """Return the state of a leader that has run for a day."""
    return ServiceState(
        "replica-0",
        is_leader=True,
        started=fleet.mono - 86_400.0,
        plan_age=0.4,
        decisions=actions.current_decisions(),
        actions=actions.reserved,
        drains=actions.drains,
    )


def api_context(fleet: Fleet, actions: RecordingActions) -> ApiContext:
    return ApiContext(
        fleet.planner,
        lambda: service_state(fleet, actions),
        lambda: fleet.now,
        actions,
        actions,
        drain_cluster=lambda: actions.drain_cluster,
    )


@contextmanager
def running_api(directory: Path, fleet: Fleet, actions: RecordingActions) -> Iterator[str]:
    """Run the API in a thread. Yield the path of its socket."""
    path = str(directory / "aggregator.sock")
    ready, loop = threading.Event(), asyncio.new_event_loop()
    end = asyncio.Event()

    async def run() -> None:
        async with serve_api(path, api_context(fleet, actions)):
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield path
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)
        loop.close()


class Client:
    """A client of the API at a socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        async with self._session.request(method, f"http://aggregator/v1/{path}", **options) as response:
            assert response.content_type == "application/json"
            return response.status, await response.read()

    async def error(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        status, body = await self(method, path, **options)
        content = msgspec.json.decode(body)
        assert list(content) == ["error"]
        return status, content["error"]


@asynccontextmanager
async def client(
    tmp_path: Path, fleet: Fleet, actions: RecordingActions, history: str = ""
) -> AsyncIterator[Client]:
    path = str(tmp_path / "run" / "aggregator.sock")
    async with serve_api(path, replace(api_context(fleet, actions), history=history)):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as session:
            yield Client(session)
    assert not Path(path).exists()


def fleet_with_fault(policy: Policy = AT_ONCE) -> Fleet:
    fleet = Fleet(3, policy)
    fleet.report(1, finding())
    fleet.after(10.0)
    fleet.carry_out()
    return fleet
