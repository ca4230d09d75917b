"""The encoding of messages: JSON, which a person can read with curl.

A reader of version N accepts N-1 and N+1: it ignores unknown fields, and missing ones have a default.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from nodeguard.model.printable import printable_json
from nodeguard.wire.instruction import Instruction, Reply
from nodeguard.wire.report import VERSION, Count, Message, Name

# Bytes of one message and of one reply.
MESSAGE_LIMIT = 256 * 1024
REPLY_LIMIT = 64 * 1024


class EncodingError(Exception):
    """An invalid, too long or too old message; has the reason and the remedy."""


class _Head(Struct):
    version: Annotated[int, Meta(ge=-(2**31), le=2**31)]


class _Envelope(Struct):
    """A reply with separately decoded instructions: one of an unknown kind does not hide the others."""

    version: int
    acked_sequence: Count | None = None
    resend: bool = False
    instructions: tuple[Raw, ...] = ()
    injectable: tuple[Name, ...] = ()


_ENCODER = msgspec.json.Encoder()
_HEAD = msgspec.json.Decoder(_Head)
_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_INSTRUCTION: msgspec.json.Decoder[Instruction] = msgspec.json.Decoder(Instruction)


def encode(message: Message | Reply) -> bytes:
    """Return a message or reply as bytes. Raises EncodingError if it is longer than its reader accepts."""
    data = _ENCODER.encode(message)
    limit = REPLY_LIMIT if isinstance(message, Reply) else MESSAGE_LIMIT
    if len(data) > limit:
        raise EncodingError(f"{_name(message)} has {len(data)} bytes, more than {limit}: leave something out")
    return data


def decode_message(data: bytes) -> Message:
    """Return a report or heartbeat. Raises EncodingError."""
    message: Message = _decode(data, MESSAGE_LIMIT, _MESSAGE, "message")
    return message


def decode_printable_message(data: bytes) -> Message:
    """Return a report or heartbeat of any sender, with printable texts only: these reach people through
    conditions, Events, incidents and notifications. Raises EncodingError.
    """
    message = decode_message(data)
    try:
        text = printable_json(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EncodingError(f"the message cannot be read, {_reason(error)}: {_remedy(VERSION)}") from None
    return message if text is data else decode_message(text)


def decode_reply(data: bytes) -> tuple[Reply, tuple[str, ...]]:
    """Return a reply, and an error for each instruction in it that is invalid.

    Raises EncodingError if the reply itself is invalid.
    """
    envelope: _Envelope = _decode(data, REPLY_LIMIT, _ENVELOPE, "reply")
    instructions, errors = [], []
    for raw in envelope.instructions:
        try:
            instructions.append(_INSTRUCTION.decode(raw))
        except (msgspec.DecodeError, RecursionError) as error:
            errors.append(f"an instruction is ignored, {_reason(error)}: {_remedy(envelope.version)}")
    reply = Reply(
        envelope.version, envelope.acked_sequence, envelope.resend, tuple(instructions), envelope.injectable
    )
    return reply, tuple(errors)


def _decode(data: bytes, limit: int, decoder: msgspec.json.Decoder[Any], name: str) -> Any:
    if len(data) > limit:
        raise EncodingError(f"the {name} has {len(data)} bytes, more than {limit}: see who sent it")
    try:
        version = _HEAD.decode(data).version
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EncodingError(
            f"this is not a {name} of nodeguard, {_reason(error)}: see that the address is the aggregator's"
        ) from None
    if not VERSION - 1 <= version <= VERSION + 1:
        raise EncodingError(
            f"the {name} has version {version}, and {VERSION - 1} to {VERSION + 1} are supported here: "
            f"{_upgrade(version)}"
        )
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EncodingError(f"the {name} cannot be read, {_reason(error)}: {_remedy(version)}") from None


def _name(message: Message | Reply) -> str:
    return "the reply" if isinstance(message, Reply) else "the message"


def _reason(error: Exception) -> str:
    """Return the decoder's error without the decoded text, which must not get into a log."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return (
            "it has " + ("an unknown value" if "Invalid" in str(error) else "an invalid field") + _path(error)
        )
    return "it is not JSON"


def _path(error: Exception) -> str:
    path = str(error).rpartition(" - at `")[2].removesuffix("`")
    return f" at {path[:80]}" if path.startswith("$") and path.isprintable() else ""


def _remedy(version: int) -> str:
    return _upgrade(version) if version != VERSION else "report it, with the versions of both sides"


def _upgrade(version: int) -> str:
    return "upgrade this side first" if version > VERSION else "upgrade the other side"
