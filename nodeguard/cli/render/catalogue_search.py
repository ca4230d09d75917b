"""The search of nodeguard explain for words in the catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.cli.usage import UsageError, did_you_mean, quoted
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import Check

# Words of a text that is a sentence rather than words to search for, and of one that is not searched at all.
_SENTENCE = 3
_MAX_WORDS = 20


class MatchOutput(Struct, frozen=True):
    """A result of a search. name: what to explain. health: of a check, empty for a code."""

    name: str
    title: str
    health: str = ""


def search(catalogue: Catalogue, text: str) -> list[MatchOutput]:
    """Return the checks and codes that contain all words of a text, only SXids if its first word is `sxid`.
    Raises UsageError for none.
    """
    words = text.lower().split()
    only_sxids = words[0] == "sxid"
    words = words[1:] if only_sxids else words

    def contains(*texts: str) -> bool:
        return len(words) <= _MAX_WORDS and contains_words(words, *texts)

    # A name or title is a better match than an explanation, which is searched where no name matches.
    checks = [check for check in catalogue.checks if contains(check.id, check.title, check.family)]
    checks = checks or [check for check in catalogue.checks if contains(check.title, check.description)]
    sxids = [
        MatchOutput(f"sxid {row.code}", row.name.replace("_", " "))
        for row in catalogue.sxids.values()
        if contains(row.name.replace("_", " "))
    ]
    matches = [MatchOutput(check.id, check.title, check.health.value) for check in checks]
    matches += [
        MatchOutput(f"xid {row.code}", row.summary)
        for row in catalogue.xids.values()
        if contains(row.name, row.summary)
    ]
    matches = sxids if only_sxids else matches + sxids
    if not matches and len(words) >= _SENTENCE:
        raise UsageError(_unknown_text(catalogue))
    if not matches:
        names = {name for check in catalogue.checks for name in (check.id, check.family)}
        hint = did_you_mean(text, names | {alert.alert for alert in catalogue.alerts})
        raise UsageError(
            f"{quoted(text)} matches no check, code or word of the output: {hint}see nodeguard get checks"
        )
    return matches


def _unknown_text(catalogue: Catalogue) -> str:
    """Return the answer to a text that quotes nothing of the catalogue."""
    return (
        f"the text is none of {len(catalogue.patterns)} lines of the kernel log, and none of "
        f"{len(catalogue.program_messages)} kinds of errors of CUDA, NCCL, PyTorch, Slurm, Kubernetes and "
        "the host. So it names no fault of the hardware that nodeguard knows.\n"
        "  Is the machine the cause?  Run nodeguard check on the node: it needs no text.\n"
        "  Is there another line?     The first error counts: nodeguard explain - < FILE reads a whole log.\n"
        "  Is the node healthy?       Ask those who maintain the program that wrote the line."
    )


def find_named_check(catalogue: Catalogue, text: str) -> Check | None:
    """Return the check that output of nodeguard names first, None for none: by its id, or by its title as in
    the reason of a drained node of Slurm.
    """
    words = set(re.findall(r"[\w-]+", text))
    positions = {
        text.index(name): check
        for check in catalogue.checks
        for name in (check.id, f"{check.title}:", f"{check.title} -")
        if name in (words if name == check.id else text)
    }
    return positions[min(positions)] if positions else None


def contains_words(words: Iterable[str], *texts: str) -> bool:
    """Return whether each of some words is in any of some texts."""
    joined = " ".join(texts).lower()
    return all(word in joined for word in words)


def search_lines(text: str, matches: Sequence[MatchOutput]) -> Iterator[StyledLine]:
    """Yield the lines of the result of a search for a text."""
    others = [match for match in matches if not match.name.startswith("sxid ")]
    shown = others or matches
    width = max(len(match.name) for match in shown)
    title = count_noun(len(matches), "match", "matches")
    yield StyledLine((StyledText(title, "strong"), StyledText(" - ")), text, "strong")
    yield StyledLine()
    for match in shown:
        health = StyledText(f"{match.health:<9}", match.health)
        yield StyledLine((StyledText(f"{match.name:<{width}}  "), health), match.title)
    if rest := len(matches) - len(shown):
        # An SXid has only the identifier of the driver as its name: most readers look for something else.
        yield StyledLine(text=f"and {count_noun(rest, 'SXid')}: nodeguard explain sxid {text}")
    yield StyledLine()
    yield StyledLine(text="Run nodeguard explain NAME for one of these.", style="dim")
