"""The nodeguard command: finds the subcommand and keeps tracebacks from users."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nodeguard import __version__
from nodeguard.cli.usage import UNKNOWN, UsageError

_COMMANDS = {
    "check": "judge this machine, or a recorded one",
    "explain": "say what a check, an Xid or an SXid means and what to do",
    "checks": "list the checks, and validate your own",
    "record": "record what is read of this machine into a bundle",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else "--help"
    if name in {"--help", "-h"}:
        print(_help())
        return 0 if given else UNKNOWN
    if name == "--version":
        print(f"nodeguard {__version__}")
        return 0
    if name not in _COMMANDS:
        print(f"nodeguard: '{name}' is no command; see nodeguard --help", file=sys.stderr)
        return UNKNOWN
    try:
        code: int = import_module(f"nodeguard.cli.{name}").run(given[1:])
        sys.stdout.flush()
    except UsageError as error:
        print(f"nodeguard {name}: {error}", file=sys.stderr)
        return UNKNOWN
    except BrokenPipeError:
        # The reader of a pipe left. What is still buffered must not raise again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNKNOWN
    except KeyboardInterrupt:
        print(f"nodeguard {name}: interrupted", file=sys.stderr)
        return UNKNOWN
    return code


def _help() -> str:
    width = max(map(len, _COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, about in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: nodeguard COMMAND [OPTION]…",
            "",
            "Finds what is sick on a GPU node, says why, and what to do.",
            "",
            *lines,
            "",
            "nodeguard COMMAND --help says more. Exit codes: 0 ok, 1 warning or suspect, 2 fatal,",
            "3 usage error or nothing could be judged.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
