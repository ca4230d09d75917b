"""The socket at which a person on the node asks the agent for something: one instruction, one answer.

Who may connect is said by the socket's mode and held against the kernel's word for who is at the other end:
root, or the user that the agent runs as.
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

# Bytes of a request, and seconds that a client may take for it.
_LIMIT = 16 * 1024
_PATIENCE = 5.0


class InstructionOutcome(Struct, frozen=True):
    """What became of an instruction. done: whether it was carried out; said: in words, why not where it was
    not.
    """

    done: bool
    message: str


Carry = Callable[[Instruction], Awaitable[InstructionOutcome]]


async def serve_control(path: str, carry: Carry) -> asyncio.Server:
    """Listen at a path whose directory is made where only it is missing. Raises OSError where it cannot,
    where another agent listens there, or where something is there that is no socket.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await _answered(reader, writer.get_extra_info("socket"), carry)
            if answer is not None:
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so gets no answer
        finally:
            writer.close()

    return await asyncio.start_unix_server(handle, sock=bind_socket(path, "agent"), limit=_LIMIT)


async def _answered(
    reader: asyncio.StreamReader, peer: socket.socket, carry: Carry
) -> InstructionOutcome | None:
    """The answer; None where nobody waits for one, and then nothing was carried out."""
    async with asyncio.timeout(_PATIENCE):
        line = await reader.readuntil(b"\n")
    if not is_authorized_peer(peer):
        return InstructionOutcome(done=False, message="only root may ask for this")
    try:
        wanted = msgspec.json.decode(line, type=Instruction)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return InstructionOutcome(
            done=False, message=f"this is no instruction ({error}): both sides must be of one version"
        )
    return None if _has_left(peer) else await carry(wanted)


def _has_left(peer: socket.socket) -> bool:
    # Who has only ended its own sending still listens, and has not hung up.
    asked = select.poll()
    asked.register(peer.fileno(), 0)
    return any(events & select.POLLHUP for _, events in asked.poll(0))


def send_instruction(path: str, wanted: Instruction, within: float) -> InstructionOutcome:
    """Ask an agent on this machine. within: seconds for all of it. Raises OSError, or msgspec.DecodeError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as own:
        own.settimeout(within)
        own.connect(path)
        own.sendall(msgspec.json.encode(wanted) + b"\n")
        said = b""
        while chunk := own.recv(_LIMIT):
            said += chunk
    return msgspec.json.decode(said, type=InstructionOutcome)
