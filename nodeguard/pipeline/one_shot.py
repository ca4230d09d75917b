"""One look at a live machine, or a look that lasts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nodeguard.model.finding import Verdict
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import Reader
from nodeguard.sources.machine import Machine
from nodeguard.sources.source import Source


def evaluate_live(
    machine: Machine, sources: Sequence[Source], judgement: Pipeline, lasting: float, within: float
) -> Verdict:
    """The verdict after a look of so many seconds; 0 for a single one.

    Every source is read at the beginning, at its own interval, and once more at the end. within: seconds that
    any reading may take.
    """
    reader = Reader(machine)
    verdict = judgement.evaluate(reader.read(sources, within), machine.now())
    if not lasting:
        return verdict
    began = machine.now().mono
    due = {source.name: began + source.interval for source in sources}
    while True:
        now = machine.now().mono
        after = min([*due.values(), began + lasting])
        if after > now:
            time.sleep(after - now)
            now = machine.now().mono
        last = now >= began + lasting
        wanted = [source for source in sources if last or due[source.name] <= now]
        verdict = judgement.evaluate(reader.read(wanted, within), machine.now())
        if last:
            return verdict
        due.update({source.name: now + source.interval for source in wanted})
