"""Explanations of words that nodeguard prints, of its alerts and of signals. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.fleet_api.text.check import explanation
from nodeguard.fleet_api.text.wording import first_names
from nodeguard.fleet_api.view import Field, Note, Row, View
from nodeguard.model.catalogue import Alert, Word
from nodeguard.model.signal import Signal


def word_view(name: str, word: Word, checks: Sequence[str]) -> View:
    """Return the meaning of a word. name: the form of it to show. checks: ids of those that contain it."""
    rows: list[Row] = [Note(word.meaning.translate(str.maketrans("", "", "`*")))]
    if checks:
        rows.append(Field("checks", first_names(checks)))
    return explanation(name, "a word of nodeguard", rows)


def alert_view(alert: Alert) -> View:
    """Return what an alert means, where to look, and what to do."""
    rows: list[Row] = [Note(alert.meaning)]
    for name, text in ("look", alert.look), ("do", alert.remedy):
        first, *others = text.splitlines()
        rows += [Field(name, first), *(Field("", line) for line in others)]
    return explanation(alert.alert, "an alert of nodeguard", rows)


def signal_view(signal: Signal, checks: Sequence[str]) -> View:
    """Return the meaning of a signal. checks: ids of those that evaluate it."""
    rows: list[Row] = [Note(f"{signal.description[:1].upper()}{signal.description[1:]}.")]
    rows.append(Field("kind", signal.kind))
    if signal.unit or signal.fields:
        rows.append(Field("unit" if signal.unit else "fields", signal.unit or ", ".join(signal.fields)))
    rows.append(Field("read by", signal.source))
    if checks:
        rows.append(Field("checks", first_names(checks)))
    return explanation(signal.name, "a signal", rows)
