"""The client of the agent that runs on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from msgspec import DecodeError, ValidationError, json

from nodeguard.agent.control import (
    PATH,
    AgentStatus,
    AgentValues,
    InjectionRequest,
    get_status,
    get_values,
    send_instruction,
)
from nodeguard.cli.options import AGENT_SOCKET_ENVIRONMENT
from nodeguard.cli.usage import ArgumentParser, UsageError
from nodeguard.wire.instruction import Instruction

_Answer = TypeVar("_Answer", AgentStatus, AgentValues)

# What to do if no agent runs on this machine.
_START = "start nodeguard agent on this machine"

# Seconds for a status, which takes no time.
_STATUS_TIMEOUT = 10.0


def default_socket() -> str:
    """Return the path of the agent's socket if no option names it."""
    return os.environ.get(AGENT_SOCKET_ENVIRONMENT) or PATH


def add_socket(parser: ArgumentParser) -> None:
    """Add --socket."""
    about = f"socket of the agent (default: ${AGENT_SOCKET_ENVIRONMENT}, else {PATH})"
    parser.add_argument(
        "--socket",
        metavar="PATH",
        type=lambda path: path or default_socket(),
        default=default_socket(),
        help=about,
    )


def request(
    path: str, instruction: Instruction | InjectionRequest, within: float, *, without_agent: str = _START
) -> str:
    """Send an instruction to the agent, and return the message of its outcome.

    within: seconds for the answer. without_agent: what to do if no agent runs. Raises UsageError if the
    instruction is not carried out.
    """
    try:
        json.decode(json.encode(instruction), type=type(instruction))
    except ValidationError as error:
        raise UsageError(f"an argument is invalid: {error}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!r} is not UTF-8: write it again") from None
    try:
        outcome = send_instruction(path, instruction, within)
    except TimeoutError:
        raise UsageError(
            f"{path}: no answer within {within:g} s; the agent may still carry it out: see its log"
        ) from None
    except (OSError, DecodeError) as error:
        raise _unreachable(path, error, without_agent) from None
    if not outcome.done:
        raise UsageError(outcome.message)
    return outcome.message


def request_status(path: str) -> AgentStatus:
    """Return the status of the agent. Raises UsageError if it does not answer."""
    return _query(path, get_status)


def request_values(path: str) -> AgentValues:
    """Return the latest values that the agent has read. Raises UsageError if it does not answer."""
    return _query(path, get_values)


def _query(path: str, query: Callable[[str, float], _Answer]) -> _Answer:
    try:
        return query(path, _STATUS_TIMEOUT)
    except TimeoutError:
        raise UsageError(f"{path}: no answer within {_STATUS_TIMEOUT:g} s: see the agent's log") from None
    except (OSError, DecodeError) as error:
        raise _unreachable(path, error) from None


def _unreachable(path: str, error: Exception, without_agent: str = _START) -> UsageError:
    if isinstance(error, PermissionError):
        return UsageError(f"{path}: permission denied: run it as root")
    if isinstance(error, DecodeError):
        remedy = "name the socket of an agent; for the socket of an aggregator, leave out --agent"
        return UsageError(f"no agent answers at {path} (another program answers there): {remedy}")
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"no agent answers at {path} ({reason}): {without_agent}, or set --socket")
