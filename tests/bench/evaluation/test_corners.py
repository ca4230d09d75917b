"""The search for the drawn parameters with the lowest success."""

from __future__ import annotations

from bench.evaluation.corners import worst_corners
from bench.evaluation.results import EpisodeResult
from bench.evaluation.score import Score


def result(seed: int, *, leaf: float, rate: float, named: bool) -> EpisodeResult:
    return EpisodeResult(
        rule="present",
        kind="leaf dead",
        size_class=64,
        seed=seed,
        attempt=0,
        nodes=64,
        score=Score(hours=3.0, named=(60.0 if named else None,)),
        parameters={"leaf": leaf, "rate": rate},
        cpu=0.1,
    )


def test_the_worst_corner_is_found() -> None:
    """Small leaves in noisy fleets fail."""
    results = [
        result(seed, leaf=seed % 3, rate=seed // 3 % 3, named=not (seed % 3 == 0 and seed // 3 % 3 == 2))
        for seed in range(360)
    ]
    worst = worst_corners(results, 1)[0]
    assert set(worst.conditions) == {"leaf 0 to 0", "rate 2 to 2"}
    assert worst.success.hits == 0


def test_a_corner_has_enough_episodes() -> None:
    assert worst_corners([result(seed, leaf=seed, rate=0, named=False) for seed in range(29)], 5) == []
