"""The client of the agent that runs on this machine."""

from __future__ import annotations

from msgspec import DecodeError, ValidationError, json

from nodeguard.agent.control import PATH, send_instruction
from nodeguard.cli.usage import ArgumentParser, UsageError
from nodeguard.wire.instruction import Instruction


def add_socket(parser: ArgumentParser) -> None:
    """Add --socket."""
    parser.add_argument("--socket", metavar="PATH", default=PATH, help=f"socket of the agent ({PATH})")


def request(path: str, instruction: Instruction, within: float) -> str:
    """Send an instruction to the agent, and return the message of its outcome.

    within: seconds for the answer. Raises UsageError if the instruction is not carried out.
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
    except PermissionError:
        raise UsageError(f"{path}: permission denied: run it as root") from None
    except (OSError, DecodeError) as error:
        remedy = "see that nodeguard agent runs here, or name its --socket"
        raise UsageError(f"no agent answers at {path} ({error}): {remedy}") from None
    if not outcome.done:
        raise UsageError(outcome.message)
    return outcome.message
