"""Asking the agent that runs on this machine."""

from __future__ import annotations

from msgspec import DecodeError, ValidationError, json

from nodeguard.agent.control import PATH, send_instruction
from nodeguard.cli.usage import ArgumentParser, UsageError
from nodeguard.wire.instruction import Instruction


def add_socket(parser: ArgumentParser) -> None:
    """Add --socket."""
    parser.add_argument("--socket", metavar="PATH", default=PATH, help=f"where the agent listens ({PATH})")


def asked(path: str, wanted: Instruction, within: float) -> str:
    """Ask the agent for something. Returns what it says once that is done. Raises UsageError where it is not.

    within: seconds for the answer.
    """
    try:
        json.decode(json.encode(wanted), type=type(wanted))
    except ValidationError as error:
        raise UsageError(f"this is too much, or not what is meant: {error}") from None
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!r} is no UTF-8: write it anew") from None
    try:
        answer = send_instruction(path, wanted, within)
    except TimeoutError:
        raise UsageError(
            f"{path}: no answer within {within:g} s, and it may be done still: see the agent's log"
        ) from None
    except PermissionError:
        raise UsageError(f"{path}: only root may ask: run it as root") from None
    except (OSError, DecodeError) as error:
        remedy = "see that nodeguard agent runs here, or name its --socket"
        raise UsageError(f"no agent answers at {path} ({error}): {remedy}") from None
    if not answer.done:
        raise UsageError(answer.message)
    return answer.message
