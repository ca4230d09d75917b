"""Results of episodes, as lines of JSON in a file. Pure, but for the file."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from msgspec.json import decode

from bench.evaluation.score import Score

# The kind of the time before the planted causes: usual operation of the same fleets.
BEFORE = "before"

# The rule that stands for the oracle: it names the causes that the votes decide within the episode.
ORACLE = "oracle"


class EpisodeResult(Struct, frozen=True, kw_only=True):
    """The result of an episode. parameters: drawn ones, by name. cpu: seconds, without the background's."""

    rule: str
    kind: str
    size_class: int
    seed: int
    attempt: int
    nodes: int
    score: Score
    parameters: dict[str, float]
    cpu: float


Key = tuple[str, str, int, int]


def key_of(result: EpisodeResult) -> Key:
    """Return rule, kind, size class and seed of a result."""
    return result.rule, result.kind, result.size_class, result.seed


def episode_of(result: EpisodeResult) -> tuple[str, int, int]:
    """Return kind, size class and seed of a result: the same for each rule."""
    return result.kind, result.size_class, result.seed


def read_results(path: Path) -> dict[Key, EpisodeResult]:
    """Return the results in a file of JSON lines; none without a file. A line that was cut is ignored."""
    results: dict[Key, EpisodeResult] = {}
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if line.endswith(b"\n"):
            result = decode(line, type=EpisodeResult)
            results[key_of(result)] = result
    return results
