"""From a command line to a command, and from its errors to one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.cli.program import as_typed
from nodeguard.cli.run import NAMES, run_command
from nodeguard.cli.streams import UnwritableError, discard_output, prepare_streams, print_error
from nodeguard.cli.usage import UNKNOWN
from nodeguard.model.failure import UserError


def dispatch(words: Sequence[str], program: str = "nodeguard") -> int:
    """Run a command; returns its exit code. words: the command line. program: `kubectl nodeguard` for the
    plug-in.
    """
    name = f"{program} {words[0]}" if words and words[0] in NAMES else program
    try:
        prepare_streams()
        if program == "nodeguard":
            return run_command(words)
        from nodeguard.cli.plugin.run import run_plugin  # noqa: PLC0415 - of the plug-in only

        return run_plugin(words)
    except UserError as error:
        lines = as_typed(str(error)).splitlines() or [""]
        # An indented line continues the error above.
        subject = as_typed(name)
        print_error("\n".join(line if line.startswith("  ") else f"{subject}: {line}" for line in lines))
        if isinstance(error, UnwritableError):
            discard_output()
    except BrokenPipeError:
        discard_output()  # The reader of the pipe has left, as `head` does.
    return UNKNOWN
