"""The evaluation of a live machine at one time, or over some seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nodeguard.model.finding import Verdict
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import Reader
from nodeguard.sources.machine import Machine
from nodeguard.sources.source import Source


def evaluate_live(
    machine: Machine, sources: Sequence[Source], pipeline: Pipeline, duration: float, within: float
) -> Verdict:
    """Return the verdict after a duration in seconds; 0 for a single reading.

    Every source is read at the start, at its own interval, and once more at the end. within: seconds for
    each reading.
    """
    reader = Reader(machine)
    verdict = pipeline.evaluate(reader.read(sources, within), machine.now())
    if not duration:
        return verdict
    began = machine.now().mono
    due = {source.name: began + source.interval for source in sources}
    while True:
        now = machine.now().mono
        next_at = min([*due.values(), began + duration])
        if next_at > now:
            time.sleep(next_at - now)
            now = machine.now().mono
        is_last = now >= began + duration
        selected = [source for source in sources if is_last or due[source.name] <= now]
        verdict = pipeline.evaluate(reader.read(selected, within), machine.now())
        if is_last:
            return verdict
        due.update({source.name: now + source.interval for source in selected})
