"""The local socket at which an operator on the node sends an instruction to the agent and gets the outcome.

The mode of the socket limits who may connect, and the agent checks the peer credentials of the kernel: root,
or the user that the agent runs as.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from nodeguard.local.unix_socket import bind_socket, is_authorized_peer
from nodeguard.wire.instruction import Instruction

PATH = "/run/nodeguard/agent.sock"

# Bytes of a request, and seconds for it.
_LIMIT = 16 * 1024
_PATIENCE = 5.0


class InstructionOutcome(Struct, frozen=True):
    """The outcome of an instruction. done: whether it was carried out. message: for a person, or why not."""

    done: bool
    message: str


CarryOut = Callable[[Instruction], Awaitable[InstructionOutcome]]


async def serve_control(path: str, carry_out: CarryOut) -> asyncio.Server:
    """Listen at a path; its directory is created if only that is missing.

    Raises OSError if it cannot listen, if another agent listens there, or if the path is not a socket.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            outcome = await _outcome(reader, writer.get_extra_info("socket"), carry_out)
            if outcome is not None:
                writer.write(msgspec.json.encode(outcome) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # such a client gets no answer
        finally:
            writer.close()

    return await asyncio.start_unix_server(handle, sock=bind_socket(path, "agent"), limit=_LIMIT)


async def _outcome(
    reader: asyncio.StreamReader, peer: socket.socket, carry_out: CarryOut
) -> InstructionOutcome | None:
    """Return the outcome; None if the client has left, and then nothing was carried out."""
    async with asyncio.timeout(_PATIENCE):
        line = await reader.readuntil(b"\n")
    if not is_authorized_peer(peer):
        return InstructionOutcome(done=False, message="permission denied: only root may do this")
    try:
        instruction = msgspec.json.decode(line, type=Instruction)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return InstructionOutcome(
            done=False, message=f"this is not an instruction ({error}): both sides must have one version"
        )
    return None if _has_left(peer) else await carry_out(instruction)


def _has_left(peer: socket.socket) -> bool:
    # A client that has only ended its own sending still listens, and has not hung up.
    poll = select.poll()
    poll.register(peer.fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def send_instruction(path: str, instruction: Instruction, within: float) -> InstructionOutcome:
    """Send an instruction to the agent of this machine, and return the outcome.

    within: seconds for each step. Raises OSError, or msgspec.DecodeError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(within)
        client.connect(path)
        client.sendall(msgspec.json.encode(instruction) + b"\n")
        response = b""
        while chunk := client.recv(_LIMIT):
            response += chunk
    return msgspec.json.decode(response, type=InstructionOutcome)
