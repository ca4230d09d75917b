"""Recordings as steps of a fleet: each is a node, judged in virtual time as a replay of it is. Pure, but for
what the recording reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodeguard.agent.judgement import Judgement
from nodeguard.agent.replay import rounds
from nodeguard.agent.reporting.reporter import facts
from nodeguard.backtest.replay import gpus
from nodeguard.bundle.recording import Recording
from nodeguard.fleet.steps import Reported, Seen, Step
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.node import Node
from nodeguard.model.observation import Observation
from nodeguard.sources.source import Source
from nodeguard.wire.inventory import inventory
from nodeguard.wire.of_verdict import report


def steps(
    name: str, recording: Recording, sources: Sequence[Source], judgement: Judgement, catalogue: Catalogue
) -> Iterator[Step]:
    """What an agent would have told of a recorded machine: its Node, then each transition. name: of the node,
    which is its uid, too. The Node has no labels, and as many GPUs as were seen.
    """
    said = facts(name, catalogue)
    latest: dict[str, tuple[Observation, ...]] = {}
    last, most = None, -1
    for number, one in enumerate(rounds(recording, sources, judgement)):
        latest.update((reading.source, reading.observations) for reading in one.readings)
        instant = recording.at(one.at).instant
        seen = (each for observations in latest.values() for each in observations)
        told = report(
            one.verdict, instant, replace(said, inventory=inventory(seen, one.verdict.platform)), number
        )
        state = told.boot_id, told.digest, told.proven
        if state == last:
            continue
        last = state
        if gpus(told) > most:
            most = gpus(told)
            yield Seen(instant.wall, Node(name, name, gpus=most))
        yield Reported(instant.wall, name, told)
