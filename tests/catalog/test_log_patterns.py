"""The table of kernel log lines: what it claims, what cannot be forged, and how a wrong one is refused."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.catalog.tables import example_lines, load_log_patterns
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import load_yaml
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.target import TARGET_KINDS
from nodeguard.sources.kmsg import literal_prefix, patterns_by_prefix
from tests.catalog.alternatives import Alternative, alternatives
from tests.paths import ROOT

TABLES = ROOT / "checks" / "tables"
PATTERNS = load_log_patterns(TABLES)
EXPRESSIONS = [(pattern, re.compile(pattern.pattern)) for pattern in PATTERNS]
MEANT = [pattern for pattern in PATTERNS if pattern.signal]
ROWS = load_yaml(TABLES / "kmsg.yaml").data
EXAMPLES = [(row["id"], text) for row in ROWS for text in row["examples"]]
NEAR_MISSES = [text for row in ROWS for text in row.get("near_misses", ())]


def first(text: str) -> LogPattern | None:
    return next((pattern for pattern, expression in EXPRESSIONS if expression.match(text)), None)


def test_an_example_is_claimed_by_its_own_pattern() -> None:
    for name, text in EXAMPLES:
        pattern = first(text)
        assert pattern is not None, text
        assert pattern.id == name, text


def test_a_near_miss_becomes_no_event() -> None:
    for text in NEAR_MISSES:
        pattern = first(text)
        assert pattern is None or not pattern.signal, text


@pytest.mark.parametrize("before", ["INFO: task ", "python3[4242]: "])
def test_a_name_inside_another_message_forges_nothing(before: str) -> None:
    for _, text in EXAMPLES:
        assert first(before + text) is None, text


TEXTS = st.sampled_from([text for _, text in EXAMPLES])


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, length=st.integers(1, 15), start=st.integers(0, 200))
def test_a_process_that_crashes_forges_nothing(text: str, length: int, start: int) -> None:
    """A user chooses the name of a process, of at most 15 characters, and of the file that it crashes in."""
    crash = f"{text[:length]}[1]: segfault at 0 ip 0 sp 0 error 4 in {text[start:]}[7f7c7ac00000+d3d3000]"
    claimed = first(crash)
    assert claimed is None or claimed.id == "nccl_segv"


def test_no_name_that_begins_as_a_line_of_the_kernel_forges_it() -> None:
    for _, text in EXAMPLES:
        for length in range(1, 16):
            claimed = first(
                f"{text[:length]}[1]: segfault at 0 ip 0 sp 0 error 4 in {text}[7f7c7ac00000+d3d3000]"
            )
            assert claimed is None or not claimed.signal, text[:length]


@given(name=TEXTS.map(lambda text: text[:15]) | st.text(max_size=15))
def test_a_process_that_hangs_forges_nothing(name: str) -> None:
    claimed = first(f"INFO: task {name}:1 blocked for more than 120 seconds.")
    assert claimed is None or claimed.id == "hung_task"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_whatever_matches_has_the_hint_and_begins_as_the_pattern_does(
    pattern: LogPattern, data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(rf"\A(?:{pattern.pattern})"))
    assert pattern.hint in text
    assert text.startswith(literal_prefix(pattern.pattern))


def test_a_line_is_tried_with_the_patterns_of_its_start_in_the_order_of_the_table() -> None:
    by_start = patterns_by_prefix(PATTERNS)
    for _, text in EXAMPLES:
        tried = by_start.get(text[:4], by_start[""])
        assert next(item for item in tried if re.match(item.pattern, text)) is first(text)
        assert list(tried) == [item for item in PATTERNS if item in tried]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
def test_no_line_keeps_a_pattern_busy(pattern: LogPattern) -> None:
    """A pattern sees 1,024 characters. What backtracks without limit takes seconds for them, others microseconds."""
    expression = re.compile(pattern.pattern)
    texts = [pattern.example, *(row for row in NEAR_MISSES if row[:4] == pattern.example[:4])]
    for text in texts:
        lines = [
            (text[:cut] + piece * 1024)[:1024]
            for cut in range(1, len(text) + 1, 3)
            for piece in {text[cut - 1], text[max(0, cut - 8) : cut], text[cut - 1 :], " ", "a", "0", "x: "}
        ]
        if _seconds(expression, lines) >= 0.05:
            for line in lines:
                assert any(_seconds(expression, [line]) < 0.05 for _ in range(3)), line


def _seconds(expression: re.Pattern[str], lines: list[str]) -> float:
    began = time.thread_time()
    for line in lines:
        expression.match(line)
    return time.thread_time() - began


# A character, escaped or not, a class of characters, or a bracket; then the repetition of it, if any.
_PIECE = re.compile(r"(\\.|\[\^?\]?[^\]]*\]|[()]|[^()])([*+]|\{\d*,\})?", re.DOTALL)


def test_no_pattern_repeats_a_repetition_without_limit() -> None:
    """A repetition inside a repetition can match one text in many ways, and tries them all before it fails."""
    for pattern in PATTERNS:
        assert not repeats_a_repetition(pattern.pattern), pattern.id
    assert repeats_a_repetition(r"x(?:a+ ?)+y")
    assert repeats_a_repetition(r"x(?:(?:[)]|b*)c){2,}y")
    assert not repeats_a_repetition(r"x(?:a+ ?){1,3}y\(z+\)+")


def repeats_a_repetition(pattern: str) -> bool:
    """Return whether a group that is repeated without limit has a repetition without limit in it."""
    groups = [False]
    for piece, repetition in _PIECE.findall(pattern):
        if piece == "(":
            groups.append(False)
            continue
        inner = groups.pop() if piece == ")" else False
        if inner and repetition:
            return True
        groups[-1] |= inner or bool(repetition)
    return False


def test_pattern_has_the_group_of_its_target() -> None:
    for pattern in MEANT:
        result = re.match(pattern.pattern, pattern.example)
        assert result is not None, pattern.id
        group = {"port": "dev", "disk": "dev", "node": None}.get(pattern.target, "pci")
        assert pattern.target in TARGET_KINDS, pattern.id
        assert group is None or result[group], pattern.id


LINES = (*dict.fromkeys(example_lines(TABLES)), *NEAR_MISSES)


def test_each_alternative_of_a_pattern_has_a_line_that_only_it_matches() -> None:
    """One of the tables has a line that the pattern loses without the alternative, or of which it loses a field.

    An alternative of a negative look-ahead keeps a line out. Patterns that share the look-ahead need one line.
    """
    unused, kept_out = [], dict[str, bool]()
    for pattern in PATTERNS:
        expression = re.compile(pattern.pattern)
        matched = [match for match in map(expression.match, LINES) if match]
        refused = [text for text in LINES if not expression.match(text)]
        for alternative in alternatives(pattern.pattern):
            without = re.compile(alternative.without)
            if alternative.is_negative:
                is_used = any(map(without.match, refused))
                kept_out[alternative.text] = is_used or kept_out.get(alternative.text, False)
            elif all(_groups(match) == _groups(without.match(match.string)) for match in matched):
                unused.append((pattern.id, alternative.text))
    assert unused == []
    assert [text for text, is_kept in kept_out.items() if not is_kept] == []


def _groups(match: re.Match[str] | None) -> dict[str, str | None] | None:
    return match.groupdict() if match else None


def test_alternatives_are_those_of_the_innermost_group() -> None:
    assert list(alternatives(r"a(?:b[|)]|c(?!d\||e))f")) == [
        Alternative(r"d\|", r"a(?:b[|)]|c(?!e))f", is_negative=True),
        Alternative("e", r"a(?:b[|)]|c(?!d\|))f", is_negative=True),
        Alternative("b[|)]", r"a(?:c(?!d\||e))f", is_negative=False),
        Alternative(r"c(?!d\||e)", r"a(?:b[|)])f", is_negative=False),
    ]


def test_lines_of_many_lines_are_matched_whole() -> None:
    text = "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:2901) installed in this system has\nNVRM: "
    assert first(text + "fallen off the bus and is not responding to commands.") is not None
    assert first(text + "been found") is None


def test_an_xid_is_not_hidden_by_what_follows_it() -> None:
    pattern = first("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=two\nlines, Ch 00000010")
    assert pattern is not None
    assert pattern.id == "nv_xid"


def test_what_means_nothing_becomes_no_event() -> None:
    silent = {pattern.id for pattern in PATTERNS if not pattern.signal}
    assert {"nv_sxid_detail", "mlx5_cmd_err", "aer_status", "aer_bit"} <= silent


PATTERN = (
    "- {id: a, signal: %s, target: %s, hint: %s, description: x,\n   pattern: '%s',\n   examples: [%s]}\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PATTERN % ("a.b", "node", "x", "x(", "x"),
            "kmsg.yaml:2: pattern: is no expression: missing ), unterminated subpattern at position 1: ",
        ),
        (
            PATTERN % ("a.b", "node", "y", "x", "x"),
            "kmsg.yaml:3: examples[0]: does not contain the hint 'y': correct the hint or the example",
        ),
        (
            PATTERN % ("a.b", "node", "x", "x", "a x"),
            "kmsg.yaml:3: examples[0]: is not matched by its pattern: correct the pattern or the example",
        ),
        (
            PATTERN.replace("}\n", ", near_misses: [x y]}\n") % ("a.b", "node", "x", "x", "x"),
            "kmsg.yaml:3: near_misses[0]: is matched by its pattern: narrow the pattern, or remove the line",
        ),
        (
            PATTERN % ("a.b", "gpu", "x", "x", "x"),
            "kmsg.yaml:1: target: 'gpu' needs a group 'pci', which the pattern does not have: name the group, ",
        ),
        (PATTERN % ("a.b", "fs", "x", "x", "x"), "kmsg.yaml:1: target: 'fs' is not valid: use one of "),
        (
            PATTERN % ("a.b", "node", "x", "x", ""),
            "kmsg.yaml:3: examples: a list does not fit: write a list of length >= 1",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "kmsg.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_log_patterns(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_two_patterns_have_not_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "kmsg.yaml").write_text(PATTERN % ("a.b", "node", "x", "x", "x") * 2)
    with pytest.raises(ConfigError, match=r"kmsg\.yaml:4: id: 'a' is on line 1 already: keep one"):
        load_log_patterns(tmp_path)
