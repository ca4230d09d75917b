"""Messages as bytes: JSON, so that a person with curl can read along.

A reader of version N accepts N-1 and N+1: fields it does not know are ignored, missing ones defaulted.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from nodeguard.wire.instruction import Instruction, Reply
from nodeguard.wire.report import VERSION, Count, Message

# Bytes of one message and of one reply.
MESSAGE_LIMIT = 256 * 1024
REPLY_LIMIT = 64 * 1024


class EncodingError(Exception):
    """Bytes that are no message, too many, or of a version too far away; says what and how to remedy."""


class _Head(Struct):
    version: Annotated[int, Meta(ge=-(2**31), le=2**31)]


class _Envelope(Struct):
    """A reply whose instructions are read one by one, so that one of an unknown kind hides no other."""

    version: int
    heard: Count | None = None
    resend: bool = False
    instructions: tuple[Raw, ...] = ()


_ENCODER = msgspec.json.Encoder()
_HEAD = msgspec.json.Decoder(_Head)
_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_INSTRUCTION: msgspec.json.Decoder[Instruction] = msgspec.json.Decoder(Instruction)


def encode(what: Message | Reply) -> bytes:
    """A message or reply as bytes. Raises EncodingError where these are more than its reader accepts."""
    data = _ENCODER.encode(what)
    limit = REPLY_LIMIT if isinstance(what, Reply) else MESSAGE_LIMIT
    if len(data) > limit:
        raise EncodingError(f"{_named(what)} has {len(data)} bytes, more than {limit}: leave something out")
    return data


def decode_message(data: bytes) -> Message:
    """A report or heartbeat. Raises EncodingError."""
    found: Message = _decode(data, MESSAGE_LIMIT, _MESSAGE, "message")
    return found


def decode_reply(data: bytes) -> tuple[Reply, tuple[str, ...]]:
    """A reply, and what was wrong with each instruction in it that could not be read.

    Raises EncodingError where the reply itself cannot be read.
    """
    envelope: _Envelope = _decode(data, REPLY_LIMIT, _ENVELOPE, "reply")
    instructions, wrong = [], []
    for raw in envelope.instructions:
        try:
            instructions.append(_INSTRUCTION.decode(raw))
        except (msgspec.DecodeError, RecursionError) as error:
            wrong.append(f"an instruction is left undone, {_why(error)}: {_remedy(envelope.version)}")
    reply = Reply(envelope.version, envelope.heard, envelope.resend, tuple(instructions))
    return reply, tuple(wrong)


def _decode(data: bytes, limit: int, decoder: msgspec.json.Decoder[Any], what: str) -> Any:
    if len(data) > limit:
        raise EncodingError(f"the {what} has {len(data)} bytes, more than {limit}: refuse whoever sent it")
    try:
        version = _HEAD.decode(data).version
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EncodingError(
            f"this is no {what} of nodeguard, {_why(error)}: see that the address is the aggregator's"
        ) from None
    if not VERSION - 1 <= version <= VERSION + 1:
        raise EncodingError(
            f"the {what} has version {version}, and {VERSION - 1} to {VERSION + 1} are understood here: "
            f"{_upgrade(version)}"
        )
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise EncodingError(f"the {what} cannot be read, {_why(error)}: {_remedy(version)}") from None


def _named(what: Message | Reply) -> str:
    return "the reply" if isinstance(what, Reply) else "the message"


def _why(error: Exception) -> str:
    """The reader's own words, without what was read: no sender decides what stands in a log."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, msgspec.ValidationError):
        return "it has " + ("an unknown word" if "Invalid" in str(error) else "a wrong field") + _place(error)
    return "it is not JSON"


def _place(error: Exception) -> str:
    path = str(error).rpartition(" - at `")[2].removesuffix("`")
    return f" at {path[:80]}" if path.startswith("$") and path.isprintable() else ""


def _remedy(version: int) -> str:
    return _upgrade(version) if version != VERSION else "report it, with the versions of both sides"


def _upgrade(version: int) -> str:
    return "upgrade this side first" if version > VERSION else "upgrade the other side"
