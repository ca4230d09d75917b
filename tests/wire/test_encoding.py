from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.model.finding import Action, DataStatus, Health
from nodeguard.wire.encoding import (
    MESSAGE_LIMIT,
    REPLY_LIMIT,
    EncodingError,
    decode_message,
    decode_printable_message,
    decode_reply,
    encode,
)
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Reply
from nodeguard.wire.report import (
    VERSION,
    Heartbeat,
    Inventory,
    Message,
    Report,
    ReportedComponent,
    ReportedEvidence,
    ReportedFinding,
    UnreadableTargets,
)

EXAMPLES = Path(__file__).parent / "examples"

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ages = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**53)
some_names = st.lists(names, max_size=3).map(tuple)
evidence = st.builds(ReportedEvidence, names, names, ages, counts)
findings = st.builds(
    ReportedFinding, names, names, st.sampled_from(Health), names, some_names, st.sampled_from(DataStatus),
    st.sampled_from(Action), ages, names, st.lists(evidence, max_size=2).map(tuple), counts, some_names, names,
)  # fmt: skip
components = st.builds(ReportedComponent, names, names, names, names, names)
inventories = st.builds(
    Inventory, names, names, names, st.dictionaries(names, components, max_size=3), counts
)
head = {"version": st.just(VERSION), "node": names.filter(bool), "boot_id": names.filter(bool), "sequence": counts,
        "digest": names, "acknowledged": some_names, "dropped": counts}  # fmt: skip
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Heartbeat, **head),
    st.builds(
        Report, **head, health=st.sampled_from(Health), data_status=st.sampled_from(DataStatus), agent=names,
        catalogue=names, age=ages, findings=st.lists(findings, max_size=3).map(tuple), omitted=counts,
        unreadable=st.lists(st.builds(UnreadableTargets, names, names, names, some_names), max_size=2).map(tuple), inventory=inventories,
    ),
)  # fmt: skip
ids = st.text("abcXYZ019._:/-", min_size=1, max_size=128)
instructions = st.one_of(
    st.builds(ClearFinding, ids, names, names, names, names), st.builds(DetachGpus, ids, ages, some_names)
)
replies = st.builds(
    Reply, st.just(VERSION), st.none() | counts, st.booleans(), st.lists(instructions, max_size=4).map(tuple)
)  # fmt: skip


@given(messages)
def test_a_message_is_decoded_as_encoded(message: Message) -> None:
    assert decode_message(encode(message)) == message


@given(messages)
def test_a_message_of_any_sender_has_printable_texts_only(message: Message) -> None:
    decoded = decode_printable_message(encode(message))
    assert json.dumps(msgspec.to_builtins(decoded), ensure_ascii=False).isprintable()
    assert (decoded.sequence, decoded.dropped) == (message.sequence, message.dropped)


def test_an_unknown_field_with_any_content_is_no_error_of_the_program() -> None:
    body = encode(Heartbeat(version=VERSION, node="node-1", boot_id="boot\n", sequence=1))
    for unknown in (b"[" * 900 + b"]" * 900, b"1e999", b'"\\u0000"', b'{"a\\n":null}', b'"\xff"'):
        try:
            message = decode_printable_message(body[:-1] + b',"later":' + unknown + b"}")
        except EncodingError as error:
            assert str(error).isprintable()
        else:
            assert message.sequence == 1


@given(replies)
def test_a_reply_is_decoded_as_encoded(reply: Reply) -> None:
    assert decode_reply(encode(reply)) == (reply, ())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_reports_of_adjacent_versions_are_decoded(version: int) -> None:
    report = decode_message((EXAMPLES / f"report-{version}.json").read_bytes())
    assert isinstance(report, Report)
    assert (report.version, report.node, report.sequence) == (version, "node-7", 5000123)
    assert report.health == Health.SUSPECT
    [finding] = report.findings
    assert (finding.check, finding.component) == ("gpu-hot", "GPU-1")
    assert (finding.action, finding.age) == (Action.RESET_GPU, 600.0)
    assert report.inventory.components["gpu/0000:3b:00"].vbios == "96.00"
    if version == 0:
        assert (report.data_status, report.age, report.unreadable) == (DataStatus.UNKNOWN, 0.0, ())
        assert (finding.targets, finding.topologies, finding.evidence) == ((), (), ())
    else:
        assert finding.topologies == ("rack",)
        assert finding.evidence == (ReportedEvidence("nvml", "gpu.temp = 97", 60.0, 3),)
        assert report.acknowledged == ("i-1",)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_heartbeats_of_adjacent_versions_are_decoded(version: int) -> None:
    beat = decode_message((EXAMPLES / f"heartbeat-{version}.json").read_bytes())
    assert isinstance(beat, Heartbeat)
    assert (beat.sequence, beat.digest) == (5010123, "" if version == 0 else "9f2b")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_replies_of_adjacent_versions_are_decoded(version: int) -> None:
    reply, problems = decode_reply((EXAMPLES / f"reply-{version}.json").read_bytes())
    assert [instruction.id for instruction in reply.instructions] == ["i-1", "i-2"]
    assert reply.acked_sequence == (None if version == 0 else 5010123)
    assert [problem.startswith("an instruction is ignored") for problem in problems] == [True] * (
        version == 2
    )
    assert all("upgrade this side" in problem for problem in problems)


def test_this_version_reads_the_stored_example_without_loss() -> None:
    for name in ("report-1", "heartbeat-1"):
        text = (EXAMPLES / f"{name}.json").read_bytes()
        assert json.loads(encode(decode_message(text))) == json.loads(text)
    text = (EXAMPLES / "reply-1.json").read_bytes()
    assert json.loads(encode(decode_reply(text)[0])) == json.loads(text)


@pytest.mark.parametrize(("version", "remedy"), [(-1, "the other side"), (VERSION + 2, "this side first"), (10**30, "not a message")])  # fmt: skip
def test_an_unsupported_version_is_refused_with_a_remedy(version: int, remedy: str) -> None:
    with pytest.raises(EncodingError, match=remedy):
        decode_message(b'{"kind": "heartbeat", "version": %d}' % version)


def _report(**fields: Any) -> bytes:
    values = {"kind": "report", "version": 1, "node": "n", "boot_id": "b", "sequence": 1, "health": "ok"}
    return json.dumps({**values, **fields}).encode()


HOSTILE = {
    "empty": b"",
    "not JSON": b"<html>504</html>",
    "not UTF-8": b'{"version": 1, "node": "\xff"}',
    "a list": b"[1]",
    "deep": b'{"version": 1, "kind": "report", "x": ' + b"[" * 100_000,
    "deep and closed": b'{"version": 1, "x": ' + b"[" * 50_000 + b"]" * 50_000 + b', "kind": "report"}',
    "long": b'{"version": 1' + b" " * MESSAGE_LIMIT + b"}",
    "truth as version": b'{"version": true}',
    "no such kind": b'{"version": 1, "kind": "party"}',
    "no such health": _report(health="splendid"),
    "negative age": _report(age=-1),
    "huge number": _report()[:-1] + b', "age": 1e999}',
    "huge sequence": _report(sequence=10**30),
    "no node": _report(node=""),
    "long name": _report(node="x" * 300),
    "wrong type": _report(findings={"a": 1}),
    "null": _report(findings=None),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_an_invalid_message_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(EncodingError) as caught:
        decode_message(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    assert ": " in str(caught.value)


def test_an_error_does_not_quote_the_message() -> None:
    with pytest.raises(EncodingError) as caught:
        decode_message(_report(inventory={"components": {"Bearer secret": 7}}, health="sec\nret"))
    assert "secret" not in str(caught.value)


@settings(max_examples=300)
@given(
    st.binary(max_size=200) | st.text(max_size=200).map(str.encode),
    st.sampled_from([decode_message, decode_reply]),
)
def test_any_bytes_decode_or_are_refused(data: bytes, decode: Callable[[bytes], object]) -> None:
    with suppress(EncodingError):
        assert isinstance(decode(data), (Message, tuple))


@given(st.data(), messages)
def test_a_message_with_flipped_bytes_decodes_or_is_refused(data: st.DataObject, message: Message) -> None:
    garbled = bytearray(encode(message))
    for number in data.draw(st.lists(st.integers(0, len(garbled) - 1), min_size=1, max_size=5)):
        garbled[number] = data.draw(st.integers(0, 255))
    with suppress(EncodingError):
        assert isinstance(decode_message(bytes(garbled)), Message)


def test_a_reply_that_is_too_large_is_not_encoded() -> None:
    many = tuple(
        ClearFinding(f"i-{number}", "x" * 250, "x" * 250) for number in range(REPLY_LIMIT // 500 + 1)
    )
    with pytest.raises(EncodingError, match="leave something out"):
        encode(Reply(VERSION, instructions=many))


@pytest.mark.parametrize(
    "bad",
    [{"kind": "detach-gpus", "id": "i\n2", "seconds": 1}, {"kind": "detach-gpus", "id": "", "seconds": 1},
     {"kind": "detach-gpus", "id": "i-2", "seconds": -1}, {"kind": "clear-finding", "id": "i-2"}, 7, None, []],
)  # fmt: skip
def test_an_invalid_instruction_hides_no_other(bad: object) -> None:
    good = {"kind": "detach-gpus", "id": "i-1", "seconds": 60.0}
    reply, problems = decode_reply(json.dumps({"version": 1, "instructions": [bad, good]}).encode())
    assert reply.instructions == (DetachGpus("i-1", 60.0),)
    assert len(problems) == 1
