"""The table of kernel log lines: what it claims, what cannot be forged, and how a wrong one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.catalog.located import CatalogueError, load
from nodeguard.catalog.patterns import load_patterns
from nodeguard.model.catalogue import LogPattern
from nodeguard.model.slot import KINDS

TABLES = Path(__file__).parents[2] / "checks" / "tables"
PATTERNS = load_patterns(TABLES)
MEANT = [pattern for pattern in PATTERNS if pattern.signal]
EXAMPLES = [(row["id"], text) for row in load(TABLES / "kmsg.yaml").data for text in row["examples"]]


def first(text: str) -> LogPattern | None:
    return next((one for one in PATTERNS if re.match(one.pattern, text)), None)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_is_claimed_by_its_own_pattern(name: str, text: str) -> None:
    pattern = first(text)
    assert pattern is not None
    assert pattern.id == name


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
@pytest.mark.parametrize("before", ["INFO: task ", "python3[4242]: "])
def test_a_name_inside_another_message_forges_nothing(before: str, name: str, text: str) -> None:
    assert first(before + text) is None


TEXTS = st.sampled_from([text for _, text in EXAMPLES])


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, length=st.integers(1, 15), start=st.integers(0, 200))
def test_a_process_that_crashes_forges_nothing(text: str, length: int, start: int) -> None:
    """A user chooses the name of a process, of at most 15 characters, and of the file that it crashes in."""
    crash = f"{text[:length]}[1]: segfault at 0 ip 0 sp 0 error 4 in {text[start:]}[7f7c7ac00000+d3d3000]"
    claimed = first(crash)
    assert claimed is None or claimed.id == "nccl_segv"


@given(name=TEXTS.map(lambda text: text[:15]) | st.text(max_size=15))
def test_a_process_that_hangs_forges_nothing(name: str) -> None:
    claimed = first(f"INFO: task {name}:1 blocked for more than 120 seconds.")
    assert claimed is None or claimed.id == "hung_task"


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.id)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_whatever_matches_has_the_hint(pattern: LogPattern, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(rf"\A(?:{pattern.pattern})"))
    assert pattern.hint in text


@pytest.mark.parametrize("pattern", MEANT, ids=lambda pattern: pattern.id)
def test_the_slot_is_told_where_it_is_not_the_node(pattern: LogPattern) -> None:
    found = re.match(pattern.pattern, pattern.example)
    assert found is not None
    group = {"port": "dev", "disk": "dev", "node": None}.get(pattern.slot, "pci")
    assert pattern.slot in KINDS
    assert group is None or found[group]


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


PATTERN = "- {id: a, signal: %s, slot: %s, hint: %s, about: x,\n   pattern: '%s',\n   examples: [%s]}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PATTERN % ("a.b", "node", "x", "x(", "x"),
            "kmsg.yaml:2: pattern: is no expression: missing ), unterminated subpattern at position 1: ",
        ),
        (
            PATTERN % ("a.b", "node", "y", "x", "x"),
            "kmsg.yaml:3: examples[0]: has not the hint 'y': correct the hint or the example",
        ),
        (
            PATTERN % ("a.b", "node", "x", "x", "a x"),
            "kmsg.yaml:3: examples[0]: is not matched by its pattern: correct the pattern or the example",
        ),
        (
            PATTERN % ("a.b", "gpu", "x", "x", "x"),
            "kmsg.yaml:1: slot: 'gpu' is told by a group 'pci', which the pattern has not: name the group, ",
        ),
        (PATTERN % ("a.b", "fs", "x", "x", "x"), "kmsg.yaml:1: slot: 'fs' is none of "),
        (
            PATTERN % ("a.b", "node", "x", "x", ""),
            "kmsg.yaml:3: examples: a list does not fit: write a list of length >= 1",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "kmsg.yaml").write_text(text)
    with pytest.raises(CatalogueError) as caught:
        load_patterns(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{said}")


def test_two_patterns_have_not_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "kmsg.yaml").write_text(PATTERN % ("a.b", "node", "x", "x", "x") * 2)
    with pytest.raises(CatalogueError, match=r"kmsg\.yaml:4: id: 'a' stands on line 1 already: keep one"):
        load_patterns(tmp_path)
