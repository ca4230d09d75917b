"""The tables of checks/tables, and how a wrong one is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from nodeguard.catalog.tables import load_tables
from nodeguard.config.errors import ConfigError
from nodeguard.model.catalogue import Catalogue, Nvlink5Rule, Sxid
from nodeguard.model.finding import Action
from tests.paths import ROOT

TABLES = ROOT / "checks" / "tables"
CATALOGUE = load_tables(TABLES)


def test_the_catalogue_survives_its_compiled_form() -> None:
    packed = msgspec.msgpack.encode(CATALOGUE)
    assert msgspec.msgpack.decode(packed, type=Catalogue) == CATALOGUE


# Xids.


def test_every_xid_that_is_known_is_there() -> None:
    assert list(CATALOGUE.xids) == [*range(1, 177), 185]


def test_xids_are_grouped_by_topic() -> None:
    topics: dict[str, set[int]] = {}
    for code, xid in CATALOGUE.xids.items():
        topics.setdefault(xid.topic, set()).add(code)
    engine = topics.pop("engine")
    assert topics == {
        "lost": {79},
        "ecc": {48, 92, 94, 95, 140, 168, 171, 172},
        "repair": {63, 64, 156, 157, 160, 161, 185},
        "gsp": {119, 120, 175},
        "nvlink": {74, 108, 136, 137, 155},
        "nvlink5": set(range(144, 151)),
        "recovery": {154},
        "power": {54, 162, 163, 164, 165},
        "confidential": {151, 166, 170},
        "c2c": {121, 159, 173},
        "pcie": {32, 80, 167, 176},
        "security": {110},
        "test": {14, 106, 107},
    }
    assert {13, 31, 43, 45, 46, 62, 69, 109, 143, 158} < engine


def test_an_xid_says_what_nvidia_says_of_it() -> None:
    lost = CATALOGUE.xids[79]
    assert lost.name == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert (lost.action, lost.investigate, lost.workload) == ("RESTART_BM", "CONTACT_SUPPORT", "no")
    assert (lost.applies_to, lost.reports_recovery) == (("A100", "H100", "B100", "GB200"), 565)
    assert CATALOGUE.xids[48].action == "WORKFLOW_XID_48"
    assert CATALOGUE.xids[63].action == "IGNORE"
    assert CATALOGUE.xids[95].action == "RESET_GPU"
    assert CATALOGUE.xids[74].applies_to == ("A100", "H100")
    assert (CATALOGUE.xids[167].action, CATALOGUE.xids[167].investigate) == ("unknown_failure", "unknown")
    assert (CATALOGUE.xids[168].action, CATALOGUE.xids[56].action) == ("unknown", "unused")
    assert (CATALOGUE.xids[142].action, CATALOGUE.xids[163].ended_by) == ("CONTACT_SUPPORT", (162,))
    assert CATALOGUE.xids[1].applies_to == ()


def test_notes_stand_with_their_xid() -> None:
    notes = CATALOGUE.xids[45].notes
    assert len(notes) == 3
    assert "caused by previous Xid" in notes[0]
    assert "restart Fabric Manager" in notes[1]
    assert any("INFOROM_PAGE_RETIREMENT_EVENT" in note for note in CATALOGUE.xids[63].notes)


def test_what_an_ordinary_application_causes_is_known() -> None:
    assert {code for code, xid in CATALOGUE.xids.items() if xid.workload == "yes"} == {
        13,
        31,
        43,
        45,
        69,
        137,
    }
    assert CATALOGUE.xids[14].workload == "no"


def test_the_driver_reports_a_recovery_action_since_a_branch() -> None:
    since = Counter(xid.reports_recovery for xid in CATALOGUE.xids.values() if xid.reports_recovery)
    assert since == {565: 20, 575: 3, 1: 2, 570: 1}


# Responses.


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("RESET_GPU", ("fatal", "reset-gpu")),
        ("DRAIN_AND_RESET", ("fatal", "reset-gpu")),
        ("RESTART_VM", ("fatal", "reboot-node")),
        ("RESTART_BM", ("fatal", "reboot-node")),
        ("RESTART_APP", ("warning", "restart-workload")),
        ("IGNORE", ("ignored", "none")),
        ("IGNORE_SYMPATHETIC", ("ignored", "none")),
        ("INFORMATIONAL", ("ignored", "none")),
        ("CONTACT_SUPPORT", ("warning", "contact-support")),
        ("CHECK_MECHANICALS", ("warning", "contact-support")),
        ("CHECK_APP/CUDA", ("warning", "monitor")),
        ("INVESTIGATE_SW", ("warning", "monitor")),
        ("unknown", ("warning", "monitor")),
        ("unknown_failure", ("suspect", "reset-gpu")),
        ("unused", ("warning", "monitor")),
    ],
)
def test_every_action_name_of_nvidia_has_a_response(text: str, held: tuple[str, str]) -> None:
    response = CATALOGUE.responses[text]
    assert (response.verdict, response.action) == held


def test_every_action_is_one_of_ours() -> None:
    assert {response.action for response in CATALOGUE.responses.values()} <= set(Action)
    assert {row.action for row in CATALOGUE.recovery.values()} <= set(Action)


def test_the_recovery_actions_of_the_driver() -> None:
    assert {value: row.action for value, row in CATALOGUE.recovery.items()} == {
        0: "none",
        1: "reset-gpu",
        2: "reboot-node",
        3: "reset-gpu",
        4: "reset-gpu",
        5: "reboot-node",
        6: "reboot-node",
        7: "reboot-node",
    }
    assert CATALOGUE.recovery[2].text == "Node Reboot Required"
    assert CATALOGUE.recovery[5].text == ""
    assert "nvidia-imex" in CATALOGUE.recovery[5].remedy
    assert all(row.remedy.endswith(".") for row in CATALOGUE.recovery.values())


# NVLink.


def test_every_rule_of_nvlink5_is_there_and_the_promoted_ones() -> None:
    promoted = [rule for rule in CATALOGUE.nvlink5 if rule.meaning.endswith("promoted to fatal")]
    assert len(CATALOGUE.nvlink5) == 95 + len(promoted) == 98
    assert all((rule.action, rule.severity) == ("RESET_GPU", "fatal") for rule in promoted)
    assert {rule.xid for rule in CATALOGUE.nvlink5} == set(range(144, 151))


def matched(xid: int, info: int, status: int, layout: str) -> list[Nvlink5Rule]:
    result = []
    for rule in CATALOGUE.nvlink5:
        mask, value = getattr(rule, layout)
        if rule.xid == xid and info & mask == value and (not rule.errstatus or status in rule.errstatus):
            result.append(rule)
    return result


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_every_rule_of_nvlink5_is_reached_by_what_it_describes(layout: str) -> None:
    """Where several rules match, what differs is only which unit they name."""
    for rule in CATALOGUE.nvlink5:
        for status in rule.errstatus or (0, 5):
            first = matched(rule.xid, getattr(rule, layout)[1], status, layout)[0]
            assert (first.action, first.severity) == (rule.action, rule.severity)


def test_the_more_specific_rule_stands_first() -> None:
    for layout in ("v1", "v2"):
        for rule in CATALOGUE.nvlink5:
            for status in rule.errstatus or (0,):
                result = matched(rule.xid, getattr(rule, layout)[1], status, layout)
                widths = [getattr(item, layout)[0].bit_count() for item in result]
                assert widths == sorted(widths, reverse=True)
                assert [len(item.errstatus) or 99 for item in result] == sorted(
                    len(item.errstatus) or 99 for item in result
                )


def test_a_link_down_is_read_by_its_reason() -> None:
    (rule,) = matched(149, 0x004505C6, 0, "v1")
    assert rule.unit == "NETIR_LINK_EVT/NETIR_LINK_DOWN"
    expected = ("RESET_GPU", "INVESTIGATE_LINK_SI", "link_fatal")
    assert (rule.action, rule.investigate, rule.severity) == expected
    (rule,) = matched(149, 35 << 20 | 0x1C6, 0, "v1")
    assert rule.meaning == "the peer is too hot"
    reasons = {other.v1[1] >> 20 for other in CATALOGUE.nvlink5 if other.unit == rule.unit}
    assert reasons == {0, 1, 2, 4, 10, *range(15, 19), 21, 22, *range(32, 39), 40, 42, 43}


def test_the_bits_of_xid_74() -> None:
    assert {row.register for row in CATALOGUE.xid74} == {1, 3, 4, 5}
    kinds = {(row.register, bit): row.kind for row in CATALOGUE.xid74 for bit in row.bits}
    expected = ("ignore", "ecc_parity_hw", "marginal_signal_integrity")
    assert (kinds[1, 0], kinds[1, 4], kinds[1, 21]) == expected
    assert (kinds[4, 18], kinds[5, 29]) == ("sympathetic_fabric_reset", "ecc_threshold_exceeded")
    assert (4, 31) not in kinds


# SXids.


def test_every_sxid_is_there() -> None:
    assert len(CATALOGUE.sxids) == 420
    assert Counter(row.guide for row in CATALOGUE.sxids.values()) == {
        "not_listed": 327,
        "fatal": 41,
        "non_fatal": 27,
        "always_fatal": 20,
        "other": 5,
    }


def test_an_sxid_says_what_driver_and_guide_say_of_it() -> None:
    assert CATALOGUE.sxids[22003].action == "reset_fabric_or_restart_host"
    link = CATALOGUE.sxids[20034]
    assert (link.severity, link.guide, link.action) == ("fatal", "fatal", "restart_partition_or_vm")
    assert link.block == "nvlink data-link/physical layer"
    assert CATALOGUE.sxids[12029].severity == "unknown"
    assert "non-fatal on A100" in CATALOGUE.sxids[12029].note
    assert CATALOGUE.sxids[10000] == Sxid(10000, "host", "host interface", "unknown", "not_listed", "unknown")


# What is refused.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(TABLES, tmp_path / "tables")
    return tmp_path / "tables"


RULE = (
    "- {xid: 149, unit: A, v1: %s, v2: [0xf, 0x1], errstatus: [],\n   action: %s,\n   investigate: "
    "IGNORE, severity: %s, meaning: ''}\n"
)


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (
            "xid",
            "- {code: 1, name: A, topic: engine, action: IGNORE, summary: a}\n" * 2,
            "xid.yaml:2: code: 1 is on line 1 already: keep one of them",
        ),
        (
            "xid",
            "- {code: 1, name: A, topic: engine,\n   action: RESET, summary: a}\n",
            "xid.yaml:2: action: 'RESET' has no response: use a name of responses.yaml, or add it there",
        ),
        (
            "xid",
            "- {code: 1, name: A, topic: egine, action: IGNORE, summary: a}\n",
            "xid.yaml:1: topic: 'egine' is not valid: use one of ",
        ),
        (
            "xid",
            "- {code: 1, name: A, topic: engine,\n   action: IGNORE, summary: a, ended_by: [2]}\n",
            "xid.yaml:2: ended_by: the table has no Xid 2: name a code of the table",
        ),
        (
            "xid",
            "- {code: 1, name: A, topic: engine, action: IGNORE, summary: a, aplies_to: []}\n",
            "xid.yaml:1: aplies_to: is not known here: use one of code, name, ",
        ),
        (
            "sxid",
            "- block: a\n  codes:\n  - {code: 1, name: x}\n- block: b\n  codes:\n  - {code: 1, name: y}\n",
            "sxid.yaml:6: code: 1 is on line 3 already: keep one of them",
        ),
        (
            "sxid",
            "- block: a\n  codes:\n  - {code: 1, name: x, action: pray}\n",
            "sxid.yaml:3: action: 'pray' has no response: use a name of responses.yaml, or add it there",
        ),
        (
            "sxid",
            "- block: a\n  codes:\n  - {code: 1, name: x, severity: non_fatal}\n",
            "sxid.yaml:3: severity: 'non_fatal' is not valid: use one of contained, fatal, non-fatal, unknown; ",
        ),
        (
            "nvlink5",
            RULE % ("[0x0f, 0x11]", "IGNORE", "fatal"),
            "nvlink5.yaml:1: v1: the value 0x00000011 has bits that the mask 0x0000000f takes away: correct",
        ),
        (
            "nvlink5",
            RULE % ("[0xf, 0xg]", "IGNORE", "fatal"),
            "nvlink5.yaml:1: v1[1]: '0xg' does not fit: write a whole number",
        ),
        (
            "nvlink5",
            RULE % ("[0x1ffffffff, 0]", "IGNORE", "fatal"),
            "nvlink5.yaml:1: v1[0]: 8589934591 does not fit: write a whole number <= 4294967295",
        ),
        ("nvlink5", RULE % ("[0xf, 1]", "WAIT", "fatal"), "nvlink5.yaml:2: action: 'WAIT' has no response: "),
        (
            "nvlink5",
            RULE % ("[0xf, 1]", "IGNORE", "deadly"),
            "nvlink5.yaml:3: severity: 'deadly' is not valid: use one of fatal, link_fatal, non_fatal",
        ),
        (
            "xid74",
            "- {register: 1, bits: [3], kind: a, action: IGNORE}\n" * 2,
            "xid74.yaml:2: bits: (1, 3) is on line 1 already: keep one of them",
        ),
        (
            "xid74",
            "- {register: 8, bits: [0], kind: a, action: IGNORE}\n",
            "xid74.yaml:1: register: 8 does not fit: write a whole number <= 7",
        ),
        (
            "recovery",
            "- {value: 1, name: a, action: reset, remedy: b}\n",
            "recovery.yaml:1: action: 'reset' is not valid: use one of none, monitor, restart-workload, restart-service, ",
        ),
        (
            "responses",
            "- {name: IGNORE, verdict: harmless, action: none, meaning: x}\n",
            "responses.yaml:1: verdict: 'harmless' is not valid: use one of fatal, ignored, suspect, warning",
        ),
        (
            "responses",
            "- {name: IGNORE, verdict: ignored, action: none}\n",
            "responses.yaml:1: meaning: is missing",
        ),
    ],
)
def test_a_table_that_cannot_be_is_refused(folder: Path, table: str, text: str, message: str) -> None:
    (folder / f"{table}.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_tables(folder)
    assert str(caught.value).startswith(f"{folder}/{message}")


def test_missing_table_is_an_error(folder: Path) -> None:
    (folder / "sxid.yaml").unlink()
    with pytest.raises(ConfigError, match=r"sxid\.yaml: cannot be read: No such file"):
        load_tables(folder)
