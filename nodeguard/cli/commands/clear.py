"""nodeguard clear: have the agent on this machine clear a finding."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from nodeguard.cli.local_agent import add_socket, asked
from nodeguard.cli.options import current_user
from nodeguard.cli.streams import print_output
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.wire.instruction import ClearFinding

SUMMARY = "clear a finding on this machine"
GROUP = "Node"

_WITHIN = 30.0


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard clear",
        description="Clears a finding that lasts until something clears it, such as one of a past event. A "
        "finding whose condition holds now is not cleared: it ends when a reading shows that it is over.",
        epilog="Exit codes: 0 cleared; 3 not cleared, or nobody could be asked.",
    )
    add = parser.add_argument
    add("check", metavar="CHECK", help="the finding's check")
    add("slot", metavar="SLOT", help="where it was found, such as gpu/0000:3b:00 or node")
    add("--part", default="", metavar="ID", help="only while this part sits there")
    add("--by", default=current_user(), metavar="NAME", help="who asks for it (you)")
    add_socket(parser)
    options = parser.parse_args(arguments)
    name = f"clear-{os.getpid()}-{time.time():.0f}"
    print_output(
        asked(
            options.socket, ClearFinding(name, options.check, options.slot, options.part, options.by), _WITHIN
        )
    )
    return OK
