"""The tables of an evaluation, in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from bench.evaluation.corners import worst_corners
from bench.evaluation.figures import Share, bootstrap, share
from bench.evaluation.fleets import SIZE_CLASSES
from bench.evaluation.markdown import percent, table_head, table_row
from bench.evaluation.plants import KINDS
from bench.evaluation.results import BEFORE, ORACLE, EpisodeResult, episode_of
from nodeguard.simulate.figures import poisson, quantile

# The cost of an hour in which a healthy node is kept out of service, and of one in which a faulty node is in
# service: either node does no work then.
HEALTHY_OUT, FAULTY_IN = 1.0, 1.0

_HOURS_OF_DAY = 24.0

# Corners that are listed.
_CORNERS = 5


class Cell(Struct, frozen=True, kw_only=True):
    """The figures of some episodes.

    recall: causes that were named; precision: named causes of all that were named or wrong domains; for
    episodes without a cause, the episodes without a wrong domain. Neither counts causes that the votes do not
    decide, nor wrong domains of episodes with only such causes. undecided: share of these causes; None if the
    oracle has not run. p50, p95: seconds until a cause was named. healthy_out, faulty_in, cost: node-hours of
    an episode. suppressed: mean number of checks that are suppressed wrongly.
    """

    episodes: int
    recall: Share
    precision: Share
    undecided: float | None
    p50: float | None
    p95: float | None
    healthy_out: float
    faulty_in: float
    cost: float
    suppressed: float


# Whether the votes decide each cause of an episode, by kind, size class and seed.
Decided = Mapping[tuple[str, int, int], tuple[bool, ...]]


def decided_causes(results: Iterable[EpisodeResult]) -> Decided:
    """Return what the oracle decides."""
    return {
        episode_of(result): tuple(at is not None for at in result.score.named)
        for result in results
        if result.rule == ORACLE
    }


def _counts(result: EpisodeResult, decided: Decided) -> tuple[bool, ...]:
    """Return which causes of an episode count: all without an oracle."""
    return decided.get(episode_of(result), (True,) * len(result.score.named))


def cell(results: Sequence[EpisodeResult], decided: Decided) -> Cell:
    """Return the figures of some episodes. The intervals take each episode as one trial."""
    scores = [result.score for result in results]
    times, wrong, undecided, judged = list[float | None](), 0, 0, 0
    has_oracle = False
    for result in results:
        counts = _counts(result, decided)
        has_oracle |= episode_of(result) in decided
        times += [at for at, is_decided in zip(result.score.named, counts, strict=True) if is_decided]
        undecided += len(counts) - sum(counts)
        if any(counts) or not counts:
            wrong += len(result.score.wrong)
            judged += bool(counts)
    seconds = [at for at in times if at is not None]
    causes = len(times) + undecided
    if causes:
        precision = _share_of_episodes(len(seconds), len(seconds) + wrong, judged)
    else:
        precision = share(sum(not score.wrong for score in scores), len(scores))
    healthy_out = fmean([score.healthy_out for score in scores])
    faulty_in = fmean([score.faulty_in for score in scores])
    return Cell(
        episodes=len(scores),
        recall=_share_of_episodes(len(seconds), len(times), judged),
        precision=precision,
        undecided=undecided / causes if has_oracle and causes else None,
        p50=quantile(seconds, 0.5),
        p95=quantile(seconds, 0.95),
        healthy_out=healthy_out,
        faulty_in=faulty_in,
        cost=HEALTHY_OUT * healthy_out + FAULTY_IN * faulty_in,
        suppressed=sum(score.suppressed for score in scores) / sum(score.hours for score in scores),
    )


def _share_of_episodes(hits: int, of: int, episodes: int) -> Share:
    """Return a share with the interval of so many independent trials: causes of one episode are not."""
    if not of:
        return share(0, 0)
    trials = min(of, episodes)
    interval = share(round(hits / of * trials), trials)
    return Share(hits, of, min(interval.low, hits / of), max(interval.high, hits / of))


def tables(results: Iterable[EpisodeResult], *, is_short: bool = False) -> Iterator[str]:
    """Yield the lines of all tables, for each rule; is_short: only of that of all kinds together."""
    rows = list(results)
    decided = decided_causes(rows)
    for rule in dict.fromkeys(result.rule for result in rows if result.rule != ORACLE):
        own = [result for result in rows if result.rule == rule]
        seeds = [result.seed for result in own]
        yield f"Rule `{rule}`, seeds {min(seeds)} to {max(seeds)}:"
        yield ""
        yield from _sizes(own, decided)
        yield ""
        if not is_short:
            for size_class in _size_classes(own):
                of_size = [result for result in own if result.size_class == size_class]
                yield from _kinds(size_class, of_size, decided)
                yield ""
        episodes = [result for result in own if result.kind != BEFORE and all(_counts(result, decided))]
        yield from _corners(episodes, 1 if is_short else _CORNERS)


def _size_classes(results: Sequence[EpisodeResult]) -> list[int]:
    return [size for size in SIZE_CLASSES if any(result.size_class == size for result in results)]


def _sizes(results: Sequence[EpisodeResult], decided: Decided) -> Iterator[str]:
    """Yield the table of all kinds together, by size: with the kinds of the lowest recall and precision."""
    yield from table_head(
        "nodes", "episodes", "recall", "worst kind", "precision", "worst kind", "undecided",
        "cost, node-hours", "false domains a day", "their nodes", "checks suppressed",
    )  # fmt: skip
    for size_class in (*_size_classes(results), 0):
        of_size = [result for result in results if size_class in {0, result.size_class}]
        episodes = [result for result in of_size if result.kind != BEFORE]
        usual = [result for result in of_size if result.kind in {BEFORE, "nothing"}]
        by_kind = {kind: cell(rows, decided) for kind in KINDS if (rows := _of_kind(episodes, kind))}
        together = cell(episodes, decided)
        yield table_row(
            f"{SIZE_CLASSES[size_class][0]:,} to {SIZE_CLASSES[size_class][1]:,}" if size_class else "all",
            f"{len(episodes):,}",
            _share(together.recall),
            _worst({kind: figures.recall for kind, figures in by_kind.items()}),
            _share(together.precision),
            _worst({kind: figures.precision for kind, figures in by_kind.items()}),
            percent(together.undecided),
            f"{together.cost:.1f}",
            *_false_domains(usual),
        )


def _of_kind(results: Iterable[EpisodeResult], kind: str) -> list[EpisodeResult]:
    return [result for result in results if result.kind == kind]


def _worst(shares: dict[str, Share]) -> str:
    """Return the kind with the lowest share; those without one do not count."""
    portions = {kind: part.hits / part.of for kind, part in shares.items() if part.of}
    if not portions:
        return "-"
    kind = min(portions, key=portions.__getitem__)
    return f"{kind} {_share(shares[kind])}"


def _false_domains(usual: Sequence[EpisodeResult]) -> tuple[str, str, str]:
    """Return the false domains of a fleet in a day of usual operation, their nodes, and the mean number of
    checks that are suppressed.
    """
    hours = sum(result.score.hours for result in usual)
    if not hours:
        return "-", "-", "-"
    days, wrong = hours / _HOURS_OF_DAY, [len(result.score.wrong) for result in usual]
    low, high = (end * len(usual) / days for end in bootstrap(wrong))
    if not sum(wrong):
        high = poisson(0)[1] / days
    nodes = sum(domain.nodes for result in usual for domain in result.score.wrong) / days
    suppressed = sum(result.score.suppressed for result in usual) / hours
    return f"{sum(wrong) / days:.2f} [{low:.2f}, {high:.2f}]", f"{nodes:.1f}", f"{suppressed:.3f}"


def _kinds(size_class: int, results: Sequence[EpisodeResult], decided: Decided) -> Iterator[str]:
    """Yield the table of one size class, by kind."""
    low, high = SIZE_CLASSES[size_class]
    yield f"### {low:,} to {high:,} nodes"
    yield ""
    yield from table_head(
        "cause", "episodes", "recall", "precision", "undecided", "named after, 50% / 95%", "healthy out, h",
        "faulty in, h", "checks suppressed",
    )  # fmt: skip
    for kind in KINDS:
        rows = _of_kind(results, kind)
        if rows:
            figures = cell(rows, decided)
            yield table_row(
                kind,
                str(figures.episodes),
                _share(figures.recall),
                _share(figures.precision),
                percent(figures.undecided),
                f"{_seconds(figures.p50)} / {_seconds(figures.p95)}" if figures.p50 is not None else "-",
                f"{figures.healthy_out:.1f}",
                f"{figures.faulty_in:.1f}",
                f"{figures.suppressed:.3f}",
            )


def _corners(results: Sequence[EpisodeResult], count: int) -> Iterator[str]:
    """Yield the table of the worst corners."""
    corners = worst_corners(results, count)
    if corners:
        yield from table_head("worst corners", "episodes", "each cause named, and nothing else")
        for corner in corners:
            yield table_row("; ".join(corner.conditions), str(corner.success.of), _share(corner.success))


def _share(part: Share) -> str:
    return f"{part.hits / part.of:.2f} [{part.low:.2f}, {part.high:.2f}]" if part.of else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} s"
