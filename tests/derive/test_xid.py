from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.config.yaml_document import load_yaml
from nodeguard.derive.xid import decode_xid, recovery_action_in, summarize_xid
from nodeguard.derive.xid_index import XidIndex, XidRecord, index_xids
from nodeguard.model.check import EventOccurred
from nodeguard.model.finding import Action
from nodeguard.model.observation import Event
from nodeguard.sources.kmsg import KmsgSource
from tests.catalog.test_formats import OneRecord
from tests.catalog.test_log_patterns import PATTERNS
from tests.derive.readings import tables, xid

RECOVERY = "GPU recovery action changed from 0x0 (None) to {} ({})"


def decode(
    code: int, rest: str = "pid=1234, name=python3, Ch 00000008", *near: XidRecord, driver: int | None = 580
) -> Event:
    return decode_xid(xid(code, rest), tables(), driver, index(XidRecord(code, 100.0), *near))


def index(*xids: XidRecord) -> XidIndex:
    return index_xids(xids, tables())


def verdict(
    code: int, rest: str = "pid=1234, name=python3, Ch 00000008", *near: XidRecord
) -> tuple[str, str]:
    fields = decode(code, rest, *near).fields
    return str(fields["verdict"]), str(fields["action"])


@pytest.mark.parametrize("code", [13, 31])
def test_application_error_is_a_workload_verdict(code: int) -> None:
    assert verdict(code) == ("workload", "none")


@pytest.mark.parametrize(
    ("code", "action"), [(62, "reset-gpu"), (79, "reboot-node"), (119, "reset-gpu"), (140, "reset-gpu")]
)
def test_xid_that_requires_a_reset_or_a_reboot_is_fatal(code: int, action: str) -> None:
    assert verdict(code) == ("fatal", action)


def test_unlisted_code_is_reported() -> None:
    event = decode(9999)
    expected = ("gpu.xid.unlisted", "warning", 9999)
    assert (event.signal, event.fields["verdict"], event.fields["xid"]) == expected


def test_text_time_and_count_of_a_line_stay() -> None:
    line = Event("gpu.xid.line", 42.0, "text", {"xid": 79, "rest": ""}, 7)
    event = decode_xid(line, tables(), 580, XidIndex())
    assert (event.signal, event.at, event.text, event.count) == ("gpu.xid.lost", 42.0, "text", 7)


@pytest.mark.parametrize(
    ("rest", "process"),
    [
        ("pid=41000, name=python3, Ch 00000008", (41000, "python3")),
        ("pid='41000', name=a b, c, Ch 00000008", (41000, "a b")),
        ("pid=41000, Ch 00000008", (41000, "")),
        ("pid=7, name=<unknown>, Ch 1", (7, "")),
        ("pid='<unknown>', name=<unknown>, Ch 00000008", None),
        ("Ch 00000008", None),
        ("pid='<unknown>', name=x, pid=1, name=y, z", None),
        ("", None),
    ],
)
def test_an_xid_names_its_process(rest: str, process: tuple[int, str] | None) -> None:
    fields = decode(31, rest).fields
    assert (("pid" in fields) and (fields["pid"], fields["process"])) == (process or False)


def test_repair_is_ignored_error_requires_reset_and_both_require_drain() -> None:
    assert verdict(63)[0] == "ignored"
    assert (verdict(48), decode(48).fields["response"]) == (("fatal", "reset-gpu"), "RESET_GPU")
    for code in (63, 64):
        assert decode(48, "", XidRecord(code, 110.0)).fields["response"] == "DRAIN_AND_RESET"
    assert decode(48, "", XidRecord(63, 161.0)).fields["response"] == "RESET_GPU"


@pytest.mark.parametrize(
    ("flags", "held_as"),
    [
        ("RST: No, D-RST: No", ("warning", "restart-workload")),
        ("RST: Yes, D-RST: No", ("fatal", "reset-gpu")),
        ("RST: No, D-RST: Yes", ("fatal", "reset-gpu")),
        ("", ("warning", "restart-workload")),
    ],
)
def test_contained_error_has_the_action_that_the_driver_requests(
    flags: str, held_as: tuple[str, str]
) -> None:
    assert verdict(94, f"pid=7194, name=python3, Contained: SM (0x1,0x0). {flags}") == held_as


def test_uncontained_error_requires_a_reset_for_any_flags() -> None:
    for flags in ("RST: No, D-RST: No", ""):
        assert verdict(95, f"pid=7194, name=python3, Uncontained: LTC TAG (0x2,0x0). {flags}") == (
            "fatal",
            "reset-gpu",
        )


def test_channel_error_after_another_error_is_its_consequence() -> None:
    rest = "pid=4242, name=trainer, Ch 00000011 caused by previous Xid 94"
    event = decode(45, rest, XidRecord(94, 99.0, has_message=True))
    assert (event.fields["verdict"], event.fields["detail"]) == ("ignored", " (follows Xid 94)")
    assert verdict(45, "pid=4242, name=trainer, Ch 00000011", XidRecord(79, 99.0)) == ("ignored", "none")


@pytest.mark.parametrize(
    ("cause", "signal", "held_as"),
    [
        (74, "gpu.xid.nvlink", ("suspect", "reset-gpu")),
        (144, "gpu.xid.nvlink5", ("fatal", "reset-gpu")),
        (145, "gpu.xid.nvlink5", ("warning", "restart-workload")),
        (148, "gpu.xid.nvlink5", ("warning", "restart-workload")),
        (149, "gpu.xid.nvlink5", ("fatal", "reset-gpu")),
        (94, "gpu.xid.ecc", ("warning", "restart-workload")),
        (119, "gpu.xid.gsp", ("fatal", "reset-gpu")),
        (31, "gpu.xid.engine", ("workload", "none")),
        (9999, "gpu.xid.unlisted", ("warning", "monitor")),
    ],
)
def test_a_channel_error_stands_for_the_cause_that_it_names_and_the_log_lacks(
    cause: int, signal: str, held_as: tuple[str, str]
) -> None:
    event = decode(45, f"pid=2210, name=python3, Ch 00000001 caused by previous Xid {cause}")
    assert (event.signal, event.fields["xid"]) == (signal, cause)
    assert (event.fields["verdict"], event.fields["action"]) == held_as
    assert "not in the log" in str(event.fields["detail"])


def test_a_named_error_without_own_action_follows_the_recovery_action() -> None:
    rest = "pid=2210, name=python3, Ch 00000001 caused by previous Xid 145"
    assert verdict(45, rest, XidRecord(154, 105.0, 1)) == ("fatal", "reset-gpu")
    assert verdict(45, rest, XidRecord(154, 105.0, 0)) == ("warning", "restart-workload")


def test_many_channels_that_one_error_ended_count_once() -> None:
    rest = "pid=2210, name=python3, Ch {} caused by previous Xid 39"
    lines = [
        Event("gpu.xid.line", 100.0 + 0.01 * n, "", {"xid": 45, "rest": rest.format(n)}) for n in range(20)
    ]
    near = index(*(summarize_xid(line) for line in lines))
    decoded = [decode_xid(line, tables(), 580, near) for line in lines]
    assert [event.fields["xid"] for event in decoded] == [39] + [45] * 19
    assert {event.fields["verdict"] for event in decoded[1:]} == {"ignored"}


def test_a_blank_action_of_a_code_that_names_a_failure_is_suspect() -> None:
    for code in (167, 169, 173):
        assert verdict(code) == ("suspect", "reset-gpu"), code
    for code in (164, 166, 168, 170, 171, 174, 176):
        assert verdict(code)[0] == "warning", code


def test_a_memory_subsystem_error_is_the_time_out_of_a_dead_gpu() -> None:
    event = decode(175, "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76")
    expected = ("gpu.xid.gsp", "fatal", "reset-gpu")
    assert (event.signal, event.fields["verdict"], event.fields["action"]) == expected


@pytest.mark.parametrize("code", [16, 51, 56, 61, 122])
def test_an_unused_code_asks_for_no_support(code: int) -> None:
    assert verdict(code) == ("warning", "monitor")


@pytest.mark.parametrize(
    ("value", "words", "held_as"),
    [
        ("0x0", "None", ("ignored", "none")),
        ("0x1", "GPU Reset Required", ("fatal", "reset-gpu")),
        ("0x2", "Node Reboot Required", ("fatal", "reboot-node")),
        ("0x4", "words of a later driver", ("fatal", "reset-gpu")),
        ("0x2a", "unheard of", ("fatal", "contact-support")),
    ],
)
def test_the_recovery_action_is_read_by_its_number(value: str, words: str, held_as: tuple[str, str]) -> None:
    rest = f"pid='<unknown>', name=<unknown>, {RECOVERY.format(value, words)}"
    assert verdict(154, rest) == held_as
    assert recovery_action_in(rest) == int(value, 16)


def test_missing_recovery_action_is_unknown() -> None:
    assert recovery_action_in("pid='<unknown>', name=<unknown>") is None
    assert verdict(154, "")[0] == "warning"


@pytest.mark.parametrize(
    ("driver", "code", "reported"),
    [(580, 79, True), (550, 79, False), (None, 79, True), (580, 119, False), (550, 154, True)],
)
def test_the_driver_reports_a_recovery_for_some_codes_since_some_version(
    driver: int | None, code: int, reported: bool
) -> None:
    assert decode(code, driver=driver).fields["recovery_reported"] is reported


@pytest.mark.parametrize(("action", "reported"), [(1, True), (2, False), (4, True), (5, True), (7, False)])
def test_a_later_report_of_no_recovery_does_not_end_a_request_for_a_reboot(
    action: int, reported: bool
) -> None:
    text = f"GPU recovery action changed from 0x0 (None) to 0x{action:x} (Some Words)"
    assert decode(154, text).fields["recovery_reported"] is reported


def registers(*values: int) -> str:
    words = ", ".join(f"0x{value:x}" for value in (*values, *[0] * (7 - len(values))))
    return f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3({words})"


def test_link_error_registers_determine_the_action() -> None:
    event = decode(74, registers(0, 0, 0x10000))
    expected = ("suspect", "reset-gpu", 3)
    assert (event.fields["verdict"], event.fields["action"], event.fields["link"]) == expected
    assert verdict(74, registers(1)) == ("ignored", "none")
    assert verdict(74, registers(1, 0, 0, 1 << 18))[0] == "fatal"


@pytest.mark.parametrize(
    "text",
    [
        "NVLink: failed to train link 3 to remote PCI:0000:4b:00",
        "NVLink: Failed to train link 3 to remote PCI:0000:4b:00",
        "NVLink: training failed",
    ],
)
def test_link_that_failed_to_train_requires_a_reset(text: str) -> None:
    assert verdict(74, text) == ("fatal", "reset-gpu")


def test_bits_that_are_not_listed_are_reported() -> None:
    for values in ((0, 0x80), (0, 0, 0, 0, 0, 0, 1), (1 << 31,), (1, 0, 0, 1 << 31)):
        event = decode(74, registers(*values))
        assert (event.fields["verdict"], event.fields["action"]) == ("suspect", "reset-gpu"), values
        assert "not expected" in str(event.fields["detail"])
    assert verdict(74, registers(1 << 31, 0, 0, 1 << 18))[0] == "fatal"


@pytest.mark.parametrize(
    "text",
    [
        registers(0),
        registers(1 << 12),
        "pid=7612, NVLink: fatal error detected on link 14(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        "NVLink: fatal error detected on link 6",
        "pid=<n/a>, name=<unknown>, NVLink: Fatal error detected on link 2",
    ],
)
def test_fatal_link_error_is_suspect_for_any_registers(text: str) -> None:
    assert verdict(74, text) == ("suspect", "reset-gpu")


def test_link_error_with_only_ignored_bits_is_ignored() -> None:
    for values in ((1 << 23,), (0, 0, 0, 0, 1 << 20), (1 << 30, 0, 0, 0, 1 << 29)):
        assert verdict(74, registers(*values)) == ("ignored", "none")


@pytest.mark.parametrize(
    "text", ["link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", "NVLink: something else", ""]
)
def test_link_error_without_registers_is_a_warning(text: str) -> None:
    assert verdict(74, text)[0] == "warning"


def test_only_a_cold_reset_clears_a_security_fault() -> None:
    event = decode(110)
    expected = ("gpu.xid.security", "fatal", "reboot-node")
    assert (event.signal, event.fields["verdict"], event.fields["action"]) == expected


@pytest.mark.parametrize("code", [74, *range(144, 151), 154])
def test_xid_without_a_message_is_a_warning(code: int) -> None:
    event = decode_xid(xid(code, ""), tables(), 580, index(XidRecord(code, 100.0)))
    assert (event.fields["verdict"], event.fields["action"]) == ("warning", "monitor")
    assert event.fields["reported_by_log"] is False


@pytest.mark.parametrize("code", [74, *range(144, 151), 154])
@pytest.mark.parametrize("at", [60.0, 140.0])
def test_bare_code_is_ignored_when_its_message_is_elsewhere(code: int, at: float) -> None:
    near = index(XidRecord(code, 100.0), XidRecord(code, at, has_message=True))
    event = decode_xid(xid(code, ""), tables(), 580, near)
    assert event.fields["reported_by_log"] is True
    far = index(XidRecord(code, 300.0, has_message=True), XidRecord(48, at, has_message=True))
    other = decode_xid(xid(code, ""), tables(), 580, far)
    assert other.fields["reported_by_log"] is False


def test_xid_record_notes_whether_the_line_has_a_message() -> None:
    assert summarize_xid(xid(149, "")) == XidRecord(149, 100.0)
    assert summarize_xid(xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")).has_message
    assert summarize_xid(xid(154, RECOVERY.format("0x1", "x"))).recovery == 1


def nvlink5(info: int, status: int, *, injected: int = 0, severity: str = "Nonfatal") -> str:
    return f"RLW_REMAP {severity} XC0 i{injected} Link 08 (0x{info:08x} 0x{status:08x} 0x00000000 0x00000000)"


def test_nvlink5_error_without_own_action_follows_the_recovery_action() -> None:
    text = nvlink5(0x4, 0x1)
    assert verdict(145, text) == ("warning", "restart-workload")
    assert verdict(145, text, XidRecord(154, 105.0, 1)) == ("fatal", "reset-gpu")
    assert verdict(145, text, XidRecord(154, 105.0, 0)) == ("warning", "restart-workload")
    assert decode(145, text).fields["link"] == 8


def test_an_injected_error_is_a_test() -> None:
    assert verdict(145, nvlink5(0x4, 0x1, injected=1)) == ("injected", "none")


def test_unlisted_nvlink5_sub_code_uses_the_printed_severity() -> None:
    assert verdict(145, nvlink5(0x7E, 0x1, severity="Fatal")) == ("fatal", "reset-gpu")
    assert verdict(145, nvlink5(0x7E, 0x1))[0] == "warning"


@pytest.mark.parametrize("code", sorted(tables().xids))
def test_every_code_of_the_table_has_a_valid_verdict(code: int) -> None:
    event = decode(code, "")
    assert event.fields["verdict"] in {"fatal", "suspect", "warning", "workload", "ignored", "injected"}
    assert Action(str(event.fields["action"])) is not Action.REPLACE_COMPONENT


# Parts of a line, besides its code, that change its verdict.
_WORDS = (
    "",
    *(
        f"Contained: SM (0x1,0x0). RST: {reset}, D-RST: {drain}"
        for reset in ("Yes", "No")
        for drain in ("Yes", "No")
    ),
    "Ch 00000011 caused by previous Xid 94",
    *(RECOVERY.format(f"0x{value:x}", "x") for value in range(9)),
    *(registers(*values) for values in ((0,), (1,), (0x100000,), (0, 0, 1), (0, 0, 0, 1 << 18), (0, 0x80))),
    "NVLink: failed to train link 3",
    *(
        nvlink5(info, status, injected=injected, severity=severity)
        for info in (0x4, 0x7E)
        for status in (0x1, 0x40, 0x80)
        for injected in (0, 1)
        for severity in ("Fatal", "Nonfatal")
    ),
)


def has_check(event: Event) -> bool:
    """Whether some check listens to an event like this."""
    return any(
        isinstance(leaf, EventOccurred)
        and leaf.event == event.signal
        and all(event.fields.get(field) in allowed for field, allowed in leaf.where.items())
        for check in tables().checks
        for leaf in check.leaves()
    )


@pytest.mark.parametrize("code", [*sorted(tables().xids), 9999])
def test_every_code_has_a_check_or_is_ignored(code: int) -> None:
    for words in _WORDS:
        event = decode(code, words)
        assert event.fields["verdict"] == "ignored" or has_check(event), (words, event.fields)


LINES = load_yaml(Path(__file__).parent / "xid-lines.yaml").data

# Topics of which no line is public: the GPU's firmware prints them, or they are new.
WITHOUT_LINES = {"power", "confidential", "c2c", "test"}


def decoded(text: str) -> Event:
    """Return the event that a line of Xid becomes where nothing else happened. The driver is of branch 580."""
    [observation] = KmsgSource(PATTERNS).read(OneRecord(text))
    [event] = observation.events
    return decode_xid(event, tables(), 580, index_xids((summarize_xid(event),), tables()))


@pytest.mark.parametrize("topic", LINES)
def test_a_line_of_xid_becomes_its_event(topic: str) -> None:
    for row in LINES[topic]:
        event = decoded(row["line"])
        assert (event.signal, event.fields["verdict"]) == (f"gpu.xid.{topic}", row["verdict"]), row["line"]


def test_each_topic_has_five_lines_unless_none_is_public() -> None:
    assert {topic for topic, rows in LINES.items() if len(rows) < 5} == set()
    assert {xid.topic for xid in tables().xids.values()} == set(LINES) | WITHOUT_LINES
