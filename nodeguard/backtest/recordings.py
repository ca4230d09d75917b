"""Recordings as steps of a fleet: each is a node, judged in virtual time as a replay of it is. Pure, but for
what the recording reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodeguard.agent.reporting.reporter import node_facts
from nodeguard.backtest.fleet_replay import gpu_count
from nodeguard.bundle.recording import Recording
from nodeguard.fleet.state.history_events import HistoryEvent, NodeObserved, ReportReceived
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.node import Node
from nodeguard.model.observation import Observation
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.replay import replay_steps
from nodeguard.sources.source import Source
from nodeguard.wire.report_builder import build_inventory, build_report


def recording_steps(
    name: str, recording: Recording, sources: Sequence[Source], judgement: Pipeline, catalogue: Catalogue
) -> Iterator[HistoryEvent]:
    """What an agent would have told of a recorded machine: its Node, then each transition. name: of the node,
    which is its uid, too. The Node has no labels, and as many GPUs as were seen.
    """
    said = node_facts(name, catalogue)
    latest: dict[str, tuple[Observation, ...]] = {}
    last, most = None, -1
    for number, one in enumerate(replay_steps(recording, sources, judgement)):
        latest.update((reading.source, reading.observations) for reading in one.readings)
        instant = recording.state_at(one.at).instant
        seen = (each for observations in latest.values() for each in observations)
        told = build_report(
            one.verdict, instant, replace(said, inventory=build_inventory(seen, one.verdict.platform)), number
        )
        state = told.boot_id, told.digest, told.passing
        if state == last:
            continue
        last = state
        if gpu_count(told) > most:
            most = gpu_count(told)
            yield NodeObserved(instant.wall, Node(name, name, gpus=most))
        yield ReportReceived(instant.wall, name, told)
