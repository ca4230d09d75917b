"""Steps of a fleet from recordings: each recording is a node, evaluated in virtual time as in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodeguard.agent.reporting.reporter import node_facts
from nodeguard.backtest.fleet_replay import gpu_count
from nodeguard.bundle.recording import Recording
from nodeguard.fleet.state.history_events import HistoryEvent, NodeObserved, ReportReceived
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.inventory import InventoryNode
from nodeguard.model.observation import Observation
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.replay import replay_steps
from nodeguard.sources.source import Source
from nodeguard.wire.report_builder import build_inventory, build_report


def recording_steps(
    name: str, recording: Recording, sources: Sequence[Source], judgement: Pipeline, catalogue: Catalogue
) -> Iterator[HistoryEvent]:
    """Yield the steps of a recorded machine: its Node, then each transition of its report.

    name: of the Node, and its uid. The Node has no labels, and as many GPUs as were seen.
    """
    facts = node_facts(name, catalogue)
    latest: dict[str, tuple[Observation, ...]] = {}
    last, most_gpus = None, -1
    for number, evaluation in enumerate(replay_steps(recording, sources, judgement)):
        latest.update((reading.source, reading.observations) for reading in evaluation.readings)
        instant = recording.state_at(evaluation.at).instant
        verdict = evaluation.verdict
        observations = (observation for rows in latest.values() for observation in rows)
        parts = build_inventory(observations, verdict.platform)
        node_report = build_report(verdict, instant, replace(facts, inventory=parts), number)
        state = node_report.boot_id, node_report.digest, node_report.passing
        if state == last:
            continue
        last = state
        if gpu_count(node_report) > most_gpus:
            most_gpus = gpu_count(node_report)
            yield NodeObserved(instant.wall, InventoryNode(name, name, gpus=most_gpus))
        yield ReportReceived(instant.wall, name, node_report)
