"""The local socket at which operators send instructions to the agent, and read its status.

The mode of the socket limits who may connect: root and the user of the agent, and the members of a group if
the agent has one for its socket. Instructions are for root and the user of the agent: the agent checks the
peer credentials of the kernel. Everyone who may connect may read the status.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeguard.local.unix_socket import bind_socket, is_authorized_peer, peer_user
from nodeguard.model.finding import Verdict
from nodeguard.model.injection import Injection
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.printable import printable_json
from nodeguard.model.signal import Scalar
from nodeguard.wire.instruction import ClearFinding, DetachGpus, Instruction
from nodeguard.wire.report import Name

PATH = "/run/nodeguard/agent.sock"

# Bytes of a request and of a part of a response, and seconds for a request.
_LIMIT = 16 * 1024
_PATIENCE = 5.0


class GetStatus(Struct, frozen=True, tag_field="kind", tag="get-status"):
    """A request for the agent's status."""


class GetValues(Struct, frozen=True, tag_field="kind", tag="get-values"):
    """A request for the latest values of GPUs and ports."""


class InjectFault(Struct, frozen=True, tag_field="kind", tag="inject-fault"):
    """A request to inject a fault of a check for some seconds. target: empty for the only possible one.

    dry_run: only check whether it is possible. No aggregator can send this request.
    """

    check: Name
    target: Name = ""
    seconds: float = 600.0
    dry_run: bool = False


class EndInjections(Struct, frozen=True, tag_field="kind", tag="end-injections"):
    """A request to end an injected fault by its id, the only one without an id, or all."""

    id: Name = ""
    all: bool = False


InjectionRequest = InjectFault | EndInjections
_Request = ClearFinding | DetachGpus | GetStatus | GetValues | InjectionRequest


class InstructionOutcome(Struct, frozen=True):
    """The outcome of an instruction. done: whether it was carried out. message: for a person, or why not."""

    done: bool
    message: str


class AgentStatus(Struct, frozen=True):
    """The status of a running agent. Times are seconds since the epoch.

    verdict: None before the first. ages: seconds since each source was read. unread: sources without a
    reading. detached: when the detachment of a GPU ends, by target; NODE for all GPUs. acknowledged_at: when
    each aggregator last acknowledged a message, None for never; empty without aggregators. spooled: number of
    transitions that no aggregator has acknowledged. state_error: why the state is not on a disk. injections:
    the faults that are injected.
    """

    version: str
    node: str
    at: float
    boot_id: str
    verdict: Verdict | None
    ages: dict[str, float]
    unread: tuple[str, ...]
    detached: dict[str, float]
    acknowledged_at: dict[str, float | None]
    spooled: int
    state_error: str = ""
    injections: tuple[Injection, ...] = ()
    catalogue: str = ""
    """Digest of the checks that it evaluates; empty of an older agent."""
    problems: dict[str, str] = {}
    """Why each aggregator did not acknowledge the latest message, without those that did."""


class SourceValues(Struct, frozen=True):
    """The latest reading of a source. age: seconds. is_stale: whether it is too old to be evaluated. targets:
    the signals of each GPU, NVLink and port; one without a value is missing.
    """

    source: str
    age: float
    is_stale: bool
    targets: dict[str, dict[str, Scalar]]


class AgentValues(Struct, frozen=True):
    """The latest values that a running agent has read. at: seconds since the epoch. indices: of GPUs in
    nvidia-smi, by target; an unknown one is missing.
    """

    node: str
    at: float
    sources: tuple[SourceValues, ...]
    indices: dict[str, int] = {}


# Carries out an injection request of a user id.
Inject = Callable[[InjectionRequest, int], Awaitable[InstructionOutcome]]

CarryOut = Callable[[Instruction], Awaitable[InstructionOutcome]]

_Response = TypeVar("_Response", bound=Struct)


async def serve_control(
    path: str,
    carry_out: CarryOut,
    inject: Inject,
    status: Callable[[], AgentStatus],
    group: str = "",
    values: Callable[[], AgentValues] | None = None,
) -> asyncio.Server:
    """Listen at a path; its directory is created if only that is missing. group: see bind_socket. values:
    None for an agent that offers none.

    Raises OSError if it cannot listen, if another agent listens there, or if the path is not a socket.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            response = await _respond(
                reader, writer.get_extra_info("socket"), carry_out, inject, status, values
            )
            if response is not None:
                writer.write(msgspec.json.encode(response) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # such a client gets no answer
        except asyncio.CancelledError:
            pass  # the event loop ends: asyncio of Python 3.11 would print a traceback
        finally:
            writer.close()

    return await asyncio.start_unix_server(handle, sock=bind_socket(path, "agent", group), limit=_LIMIT)


async def _respond(
    reader: asyncio.StreamReader,
    peer: socket.socket,
    carry_out: CarryOut,
    inject: Inject,
    status: Callable[[], AgentStatus],
    values: Callable[[], AgentValues] | None,
) -> InstructionOutcome | AgentStatus | AgentValues | None:
    """Return the response; None if the client has left, and then nothing was carried out."""
    async with asyncio.timeout(_PATIENCE):
        line = await reader.readuntil(b"\n")
    try:
        request = msgspec.json.decode(printable_json(line.strip()), type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return InstructionOutcome(
            done=False, message=f"this is not an instruction ({error}): both sides must have one version"
        )
    if isinstance(request, GetStatus):
        return status()
    if isinstance(request, GetValues):
        return values() if values else InstructionOutcome(done=False, message="this agent offers no values")
    if not is_authorized_peer(peer):
        return InstructionOutcome(done=False, message="permission denied: only root may do this")
    if _has_left(peer):
        return None
    if isinstance(request, InjectFault | EndInjections):
        return await inject(request, peer_user(peer))
    return await carry_out(request)


def _has_left(peer: socket.socket) -> bool:
    # A client that has only ended its own sending still listens, and has not hung up.
    poll = select.poll()
    poll.register(peer.fileno(), 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def send_instruction(
    path: str, instruction: Instruction | InjectionRequest, within: float
) -> InstructionOutcome:
    """Send an instruction to the agent of this machine, and return the outcome.

    within: seconds for each step. Raises OSError, or msgspec.DecodeError.
    """
    return _exchange(path, instruction, within, InstructionOutcome)


def get_status(path: str, within: float) -> AgentStatus:
    """Return the status of the agent of this machine. Raises OSError, or msgspec.DecodeError."""
    return _exchange(path, GetStatus(), within, AgentStatus)


def get_values(path: str, within: float) -> AgentValues:
    """Return the values of the agent of this machine. Raises OSError, or msgspec.DecodeError."""
    return _exchange(path, GetValues(), within, AgentValues)


def _exchange(
    path: str,
    request: Instruction | InjectionRequest | GetStatus | GetValues,
    within: float,
    response_type: type[_Response],
) -> _Response:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(within)
        client.connect(path)
        client.sendall(msgspec.json.encode(request) + b"\n")
        response = b""
        while chunk := client.recv(_LIMIT):
            response += chunk
    return JsonDecoder(response_type).decode(response)
