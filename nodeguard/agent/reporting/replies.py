"""Whether an answer is the reply to what was sent, and what to do where it is not. Pure."""

from __future__ import annotations

from nodeguard.agent.reporting.transport import Answer
from nodeguard.wire.encoding import EncodingError, decode_reply
from nodeguard.wire.instruction import Reply
from nodeguard.wire.report import Message

ITS_LOG = "its log says why"

# The status of an answer to a message that conflicts with others of its node: see wire.order.
_CONFLICT = 409

_REMEDIES = {
    401: "see that the token is one for it, and that both clocks agree",
    403: "see that the token is this node's own",
    _CONFLICT: f"see that one agent runs on the node: {ITS_LOG}",
    404: "see that the address has the path of the aggregator",
    413: "see what limits the size of requests between here and there",
} | dict.fromkeys((301, 302, 303, 307, 308), "it wants to be found elsewhere: set its address itself")


class ReplyError(Exception):
    """An answer that leaves open whether the message was heard; says why and how to remedy.

    garbled: what else comes on this connection may belong to something else, too. refused: this very message
    is not applied, whenever it is sent again; another one may be.
    """

    def __init__(self, why: str, *, garbled: bool = False, refused: bool = False) -> None:
        super().__init__(why)
        self.garbled = garbled
        self.refused = refused


# What an aggregator's own words begin with: those of whatever else stands on the way stay out of the log.
_OWN = b"nodeguard: "
_LONGEST = 400


def read(answer: Answer, message: Message) -> tuple[Reply, tuple[str, ...]]:
    """The reply to a message, and what was wrong with instructions in it. Raises ReplyError."""
    if answer.status != 200:
        why = _words(answer.body) or _REMEDIES.get(answer.status, ITS_LOG)
        raise ReplyError(f"it answered {answer.status}: {why}", refused=answer.status == _CONFLICT)
    try:
        reply, wrong = decode_reply(answer.body)
    except EncodingError as error:
        raise ReplyError(str(error), garbled=True) from None
    if reply.heard is not None and reply.heard != message.sequence:
        raise ReplyError("it answered another message: see what stands between here and there", garbled=True)
    return reply, wrong


def _words(body: bytes) -> str:
    """An aggregator's own words, if they can stand in a log: a printable line, and nothing like a token."""
    line = body[: _LONGEST + 1].removesuffix(b"\n")
    if not line.startswith(_OWN) or len(line) > _LONGEST:
        return ""
    text = line.removeprefix(_OWN).decode("ascii", "replace")
    return text if text.isascii() and text.isprintable() and max(map(len, text.split(" "))) < 80 else ""
