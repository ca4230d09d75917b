"""Actions in the state file: the aggregator is killed at each write, and the disk fails at each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from nodeguard.aggregator.backends import standalone_store
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.aggregator.backends.standalone_state import (
    StandaloneState,
    StandaloneStateError,
    read_state,
    write_state,
)
from nodeguard.model.action import ActionState
from nodeguard.model.action_store import ActionStoreError
from nodeguard.wire.instruction import InstructionInbox, add_instructions, record_result
from nodeguard.wire.report import InstructionResult
from tests.aggregator.backends.test_standalone import Scene
from tests.fleet.scene import finding


class FailingDisk:
    """Writes of the state file, of which one fails. fails_at: its number; is_written: whether it is on the disk."""

    def __init__(self, fails_at: int, *, is_written: bool) -> None:
        self._fails_at = fails_at
        self._is_written = is_written
        self.count = 0

    def __call__(self, path: str, state: StandaloneState) -> int:
        self.count += 1
        if self.count == self._fails_at:
            if self._is_written:
                write_state(path, state)
            raise StandaloneStateError(f"{path}: no space")
        return write_state(path, state)


class Agent:
    """An agent with its stored inbox. carried_out: ids of instructions in their order."""

    def __init__(self) -> None:
        self.inbox = InstructionInbox()
        self.carried_out: list[str] = []

    def exchange(self, scene: Scene) -> None:
        """Acknowledge what was carried out, and carry out what is new."""
        scene.outbox.acknowledge("gpu-1", self.inbox.done, self.inbox.results)
        offered = scene.outbox.pending("gpu-1")
        stored = read_state(scene.path).actions.values()
        assert not offered or any(action.state == ActionState.RUNNING for action in stored)
        self.inbox, new = add_instructions(self.inbox, offered)
        for instruction in new:
            self.carried_out.append(instruction.id)
            result = InstructionResult(instruction.id, done=True, message="cleared")
            self.inbox = record_result(self.inbox, result)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "runs on"])
@pytest.mark.parametrize("is_written", [True, False], ids=["after the write", "before it"])
@pytest.mark.parametrize("fails_at", range(1, 5))
async def test_a_clear_is_carried_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int, is_written: bool, is_killed: bool
) -> None:
    scene, agent = Scene(tmp_path), Agent()
    scene.report("gpu-1", finding())
    await scene.turn()
    name = scene.name()
    disk = FailingDisk(fails_at, is_written=is_written)
    monkeypatch.setattr(standalone_store, "write_state", disk)
    with suppress(OperatorActionError):
        await scene.backend.clear(name, "Bob")
    is_requested = name in scene.backend.decisions()
    for _ in range(6):
        count = disk.count
        with suppress(ActionStoreError):
            await scene.act()
        if is_killed and count < fails_at <= disk.count:
            scene.restart()
            scene.report("gpu-1", finding())
            await scene.turn()
            await scene.act()
        agent.exchange(scene)
    is_requested = is_requested or name in scene.backend.decisions()
    states = [action.state for action in read_state(scene.path).actions.values()]
    assert states == ([ActionState.SUCCEEDED] if is_requested else [])
    assert len(agent.carried_out) == len(states)
