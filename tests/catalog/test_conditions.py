"""Conditions as written: what compiles, what it compiles to, and how the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from nodeguard.catalog.check_schema import ConditionSchema
from nodeguard.catalog.conditions import ConditionParser
from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import ConfigError, FieldPath
from nodeguard.config.yaml_document import YamlDocument, convert
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet_api.text import check as wording
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.check import (
    AllOf,
    AnyOf,
    Compare,
    Condition,
    EventOccurred,
    Increase,
    Reference,
    Sustained,
)
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.platform import EXPECTATIONS, Platform
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.pipeline.pipeline import Pipeline
from tests.judge.judged_node import check

SIGNALS = signals_by_name(
    Signal("a.level", "gauge", ""),
    Signal("a.limit", "gauge", ""),
    Signal("a.share", "gauge", "", unit="ratio"),
    Signal("a.errors", "counter", "", bits=16),
    Signal("a.state", "state", ""),
    Signal("a.row_remap.failed", "state", ""),
    Signal("a.row_remap.banks", "gauge", ""),
    Signal("a.happened", "event", "", fields=("code", "word")),
)


class Form(Struct):
    when: ConditionSchema


def compiled(**form: Any) -> Condition:
    """The condition of a form; `for_`, `is_`, `in_`, `any_`, `all_` stand for the words without `_`."""
    written = {name.rstrip("_"): value for name, value in form.items()}
    document = YamlDocument("checks.yaml", {"when": written}, {(): 1})
    schema = convert(document, Form, decode=decode_amounts)
    return ConditionParser(document, SIGNALS).condition(schema.when, ("when",))


def written_path(path: FieldPath) -> str:
    """A path as text, such as `when.any[1].signal`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


@pytest.mark.parametrize(
    ("form", "meant"),
    [
        ({"signal": "a.level", "below": 5}, Compare("a.level", "below", 5)),
        ({"signal": "a.level", "at_least": 0.5}, Compare("a.level", "at_least", 0.5)),
        ({"signal": "a.state", "is": False}, Compare("a.state", "is", value=False)),
        ({"signal": "a.state", "is_not": "up"}, Compare("a.state", "is_not", "up")),
        ({"signal": "a.state", "in": ["up", 3]}, Compare("a.state", "in", ("up", 3))),
        ({"signal": "a.state", "in": ["up"]}, Compare("a.state", "in", ("up",))),
        (
            {"signal": "a.level", "below": {"signal": "a.limit"}, "by": 5},
            Compare("a.level", "below", None, Reference("signal", "a.limit"), 5.0),
        ),
        (
            {"signal": "a.level", "is": {"platform": "gpus"}},
            Compare("a.level", "is", None, Reference("platform", "gpus")),
        ),
        (
            {"signal": "a.level", "below": {"peers": True}},
            Compare("a.level", "below", None, Reference("peers", "a.level")),
        ),
        (
            {"signal": "a.level", "below": {"inventory": True}},
            Compare("a.level", "below", None, Reference("inventory", "a.level")),
        ),
        ({"signal": "a.errors", "increases_by": 3, "over": "1h"}, Increase("a.errors", 3.0, 3600.0, 16)),
        ({"event": "a.happened"}, EventOccurred("a.happened")),
        (
            {"event": "a.happened", "where": {"code": [1, 2], "word": "x"}, "times": 64, "over": "2d"},
            EventOccurred("a.happened", {"code": (1, 2), "word": ("x",)}, 64, 172_800.0),
        ),
        (
            {"event": "a.happened", "times": 3, "apart": "1m"},
            EventOccurred("a.happened", times=3, apart=60.0),
        ),
        (
            {"event": "a.happened", "unless_read": ["a.level"]},
            EventOccurred("a.happened", unless_read={"a.level": ""}),
        ),
        ({"signal": "a.level", "below": 5, "for": "5m"}, Sustained(Compare("a.level", "below", 5), 300.0)),
        (
            {"signal": "a.level", "below": 5, "for": "30s", "seen_once": False},
            Sustained(Compare("a.level", "below", 5), 30.0, seen_once=False),
        ),
        (
            {"any": [{"signal": "a.level", "below": 5}, {"all": [{"event": "a.happened"}], "for": "1m"}]},
            AnyOf((Compare("a.level", "below", 5), Sustained(AllOf((EventOccurred("a.happened"),)), 60.0))),
        ),
    ],
)
def test_what_a_form_means(form: dict[str, Any], meant: Condition) -> None:
    assert compiled(**form) == meant


LEVEL = {"signal": "a.level"}


@pytest.mark.parametrize(
    ("form", "field", "problem", "remedy"),
    [
        ({}, "when", "has none of them", "write exactly one of signal, event, any, all"),
        ({**LEVEL, "event": "a.happened"}, "when", "has signal and event", "write exactly one of"),
        ({**LEVEL, "any": [{**LEVEL, "below": 1}]}, "when", "has signal and any", "write exactly one of"),
        ({"signal": "a.levle", "below": 1}, "when.signal", "'a.levle' is no signal", "nearest are a.level, "),
        (
            {"signal": "a.row_remap.faild", "is": True},
            "when.signal",
            "'a.row_remap.faild' is no signal",
            "nearest are a.row_remap.failed, ",
        ),
        ({"event": "a.hapened"}, "when.event", "'a.hapened' is no signal", "nearest are a.happened, "),
        ({"event": "a.level"}, "when.event", "a.level is a gauge", "use `signal` for it"),
        ({"signal": "a.happened", "is": 1}, "when.signal", "a.happened is an event", "use `event` for it"),
        (
            {**LEVEL, "below": {"signal": "a.happened"}},
            "when.below.signal",
            "a.happened is an event",
            "use `event` for it",
        ),
        ({**LEVEL, "below": {"signal": "a.x"}}, "when.below.signal", "'a.x' is no signal", "nearest are a."),
        (LEVEL, "when", "compares a.level 0 times", "write exactly one of is, is_not, in, below, "),
        ({**LEVEL, "above": 1, "below": 2}, "when", "compares a.level 2 times", "write exactly one of"),
        (
            {**LEVEL, "above": "hot"},
            "when.above",
            "'hot' is no number, and `above` compares numbers",
            "write a number",
        ),
        (
            {"signal": "a.share", "at_least": 95},
            "when.at_least",
            "95 is above 1, and a.share is a ratio",
            "write 0.95 for 95 %",
        ),
        (
            {"signal": "a.share", "at_least": "95%"},
            "when.at_least",
            "'95%' is no number, and `at_least` compares numbers",
            "write a number from 0 to 1, such as 0.95 for 95 %",
        ),
        (
            {**LEVEL, "at_most": True},
            "when.at_most",
            "True is no number, and `at_most` compares numbers",
            "write a number",
        ),
        ({**LEVEL, "below": 5, "by": 2}, "when.by", "moves a reference, and this is a", "move the constant"),
        (
            {**LEVEL, "is": {"signal": "a.limit"}, "by": 2},
            "when.by",
            "does not go with is",
            "remove by, or use below or above",
        ),
        ({**LEVEL, "below": {}}, "when.below", "has 0 references", "write one of platform, signal, peers, "),
        (
            {**LEVEL, "below": {"peers": True, "inventory": True}},
            "when.below",
            "has 2 references",
            "write one of",
        ),
        (
            {**LEVEL, "below": {"platform": "wheels"}},
            "when.below.platform",
            "no platform expects 'wheels'",
            "it is one of gpus, ",
        ),
        (
            {**LEVEL, "increases_by": 1, "over": "1h"},
            "when.increases_by",
            "a.level is a gauge, and only counters increase",
            "compare it instead",
        ),
        (
            {"signal": "a.errors", "increases_by": 1},
            "when.over",
            "is missing",
            "write a window, such as `over: 1h`",
        ),
        (
            {"signal": "a.errors", "increases_by": 1, "over": "1h", "below": 5},
            "when.below",
            "does not go with signal",
            "remove below",
        ),
        ({**LEVEL, "below": 1, "over": "1h"}, "when", "goes with `increases_by`", "add it, or remove `over`"),
        ({**LEVEL, "below": 1, "times": 2}, "when.times", "does not go with signal", "remove times"),
        ({"event": "a.happened", "is": 1}, "when.is", "does not go with event", "remove is"),
        ({"any": [{**LEVEL, "below": 1}], "over": "1h"}, "when.over", "does not go with any", "remove over"),
        (
            {"event": "a.happened", "where": {"cod": 1}},
            "when.where.cod",
            "a.happened has no such field",
            "its fields are code, word",
        ),
        (
            {**LEVEL, "below": 1, "seen_once": True},
            "when.seen_once",
            "goes with `for`",
            "add `for`, or remove",
        ),
        (
            {"all": [{**LEVEL, "below": 1}, {"any": [{"event": "a.happened"}, LEVEL]}]},
            "when.all[1].any[1]",
            "compares a.level 0 times",
            "write exactly one of",
        ),
        *(
            (
                {**LEVEL, "below": 1, "for": wrong},
                "when.for",
                f"{wrong!r} is no duration",
                "write it like 30s,",
            )
            for wrong in ("", "5", "5 min", "0s", "-5s", "1.5h", "30s\n", "s", "1w", "9" * 5000 + "d", "٣s")
        ),
        (
            {"event": "a.happened", "over": "soon"},
            "when.over",
            "'soon' is no duration",
            "write it like 30s, 5m, 24h or 7d",
        ),
        (
            {"signal": "a.errors", "increases_by": 1, "over": "1y"},
            "when.over",
            "'1y' is no duration",
            "write it like 30s, 5m, 24h or 7d",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(form: dict[str, Any], field: str, problem: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compiled(**form)
    defect = refused.value
    assert written_path(defect.path) == field
    assert defect.problem.startswith(problem)
    assert defect.remedy.startswith(remedy)


@pytest.mark.parametrize(
    "form",
    [
        {"event": "a.happened", "times": 65},
        {"event": "a.happened", "times": 0},
        {"event": "a.happened", "where": {"code": []}},
        {"signal": "a.errors", "increases_by": 0, "over": "1h"},
        {**LEVEL, "below": {"signal": "a.limit"}, "by": -1},
        {**LEVEL, "below": {"peers": False}},
        {**LEVEL, "is": None},
        {**LEVEL, "in": []},
        {"any": []},
        {"any": [{**LEVEL, "below": 1}] * 17},
        {**LEVEL, "under": 1},
    ],
)
def test_what_the_form_itself_does_not_allow(form: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        compiled(**form)


# Every condition that compiles can be printed and evaluated.

NUMBERS = st.integers(-5, 5) | st.floats(-1e6, 1e6)
SCALARS = st.booleans() | NUMBERS | st.sampled_from(["", "up", "none"])
REFERENCES = (
    st.builds(lambda name: {"signal": name}, st.sampled_from(["a.level", "a.limit"]))
    | st.builds(lambda name: {"platform": name}, st.sampled_from(["gpus", "pcie_gen"]))
    | st.sampled_from([{"peers": True}, {"inventory": True}])
)
DURATIONS = st.sampled_from(["1s", "5m", "2h", "7d"])
ORDERED = st.sampled_from(["below", "at_most", "above", "at_least"])
COMPARED = (
    st.builds(lambda text, by: {"signal": "a.level", text: by}, ORDERED, NUMBERS | REFERENCES)
    | st.builds(
        lambda text, of, by: {"signal": "a.level", text: of, "by": by}, ORDERED, REFERENCES, st.floats(0.1, 9)
    )
    | st.builds(
        lambda name_and_value, text: {"signal": name_and_value[0], text: name_and_value[1]},
        st.tuples(st.just("a.level"), NUMBERS | REFERENCES)
        | st.tuples(st.just("a.state"), SCALARS | REFERENCES),
        st.sampled_from(["is", "is_not"]),
    )
    | st.builds(lambda some: {"signal": "a.state", "in": some}, st.lists(SCALARS, min_size=1, max_size=3))
)
RISEN = st.builds(
    lambda by, over: {"signal": "a.errors", "increases_by": by, "over": over}, st.floats(0.1, 9), DURATIONS
)
HAPPENED = st.builds(
    lambda more: {"event": "a.happened", **more},
    st.fixed_dictionaries(
        {},
        optional={
            "where": st.dictionaries(
                st.sampled_from(["code", "word"]), SCALARS | st.lists(SCALARS, min_size=1, max_size=2)
            ),
            "times": st.integers(1, 64),
            "over": DURATIONS,
        },
    ),
)
FORMS = st.recursive(
    COMPARED | RISEN | HAPPENED,
    lambda inner: (
        st.builds(
            lambda text, parts: {text: parts},
            st.sampled_from(["any", "all"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda item, length: {"all": [item], "for": length}, inner, DURATIONS)
    ),
    max_leaves=5,
)
EVENTS = st.lists(
    st.builds(
        lambda at, fields, count: Event("a.happened", at, "text", fields, count),
        st.floats(0, 1000),
        st.dictionaries(st.sampled_from(["code", "word"]), SCALARS),
        st.integers(1, 3),
    ),
    max_size=3,
)
READ = st.fixed_dictionaries(
    {},
    optional={"a.level": NUMBERS, "a.limit": NUMBERS, "a.errors": st.integers(0, 65_535), "a.state": SCALARS},
)
UNREAD = st.dictionaries(st.sampled_from(["a.level", "a.limit", "a.errors", "a.state"]), st.just("refused"))


@settings(max_examples=300, deadline=None)
@given(FORMS, st.lists(st.tuples(READ, UNREAD, EVENTS), min_size=1, max_size=3), st.booleans())
def test_compiled_condition_can_be_printed_and_evaluated(
    form: dict[str, Any], rounds: list[tuple[dict[str, Any], dict[str, str], list[Event]]], one_look: Any
) -> None:
    meant = compiled(**form)
    message = wording.condition_text(meant)
    assert message
    assert "None" not in message
    assert "  " not in message
    platform = Platform("p", "P", (), {"gpus": 4, "pcie_gen": 5}, "")
    catalogue = Catalogue(checks=(check(meant, cleared_by=("reboot",)),), platforms=(platform,))
    judgement = Pipeline(catalogue, SIGNALS, PlatformHints("p"), one_shot=one_look)
    for at, (signals, unread, events) in enumerate(rounds):
        hidden = {name: reason for name, reason in unread.items() if name not in signals}
        now = 1000.0 + 100.0 * at
        readings = [
            Reading("memory", now, (Observation("memory", NODE, signals=signals, unreadable=hidden),)),
            Reading("kmsg", now, (Observation("kmsg", NODE, events=tuple(events)),)),
        ]
        verdict = judgement.evaluate(readings, Instant(1e9 + now, now, "boot"))
        assert len(verdict.findings) <= 1


def test_every_expectation_can_be_named() -> None:
    for name in EXPECTATIONS:
        assert compiled(signal="a.level", below={"platform": name})


@pytest.mark.parametrize(
    ("form", "signals"),
    [
        ({"signal": "a.state", "below": 5}, {"a.state": "up"}),
        ({"signal": "a.level", "above": {"signal": "a.state"}}, {"a.level": 5, "a.state": "up"}),
        ({"signal": "a.level", "above": {"signal": "a.state"}, "by": 2}, {"a.level": 5, "a.state": "up"}),
        ({"signal": "a.level", "below": {"platform": "gpu_name"}}, {"a.level": 5}),
    ],
)
def test_a_text_where_a_number_is_expected_ends_no_round(
    form: dict[str, Any], signals: dict[str, Any]
) -> None:
    platform = Platform("p", "P", (), {"gpu_name": "NVIDIA H100 80GB HBM3"}, "")
    catalogue = Catalogue(checks=(check(compiled(**form)),), platforms=(platform,))
    reading = Reading("memory", 1.0, (Observation("memory", NODE, signals=signals),))
    verdict = Pipeline(catalogue, SIGNALS, PlatformHints("p")).evaluate([reading], Instant(1e9, 1.0, "boot"))
    assert verdict.findings == ()
