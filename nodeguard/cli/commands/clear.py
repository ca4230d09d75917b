"""nodeguard clear: clear a finding in the agent on this machine."""

from __future__ import annotations

import os
import time
from argparse import Namespace

from nodeguard.cli.local_agent import add_socket, request
from nodeguard.cli.options import current_user
from nodeguard.cli.streams import print_message
from nodeguard.cli.usage import OK, ArgumentParser
from nodeguard.wire.instruction import ClearFinding

# Seconds for the answer.
_TIMEOUT = 30.0


def run(options: Namespace) -> int:
    """Run the command and return its exit code. Raises UsageError."""
    identity = f"clear-{os.getpid()}-{time.time():.0f}"
    instruction = ClearFinding(identity, options.check, options.target, options.part, options.by)
    print_message(request(options.socket, instruction, _TIMEOUT))
    return OK


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard clear",
        description="Clear a finding that stays active until something clears it, such as of a past event."
        " A finding with a condition that is still true is not cleared: it ends when a reading shows that.",
        examples=("nodeguard clear gpu-gsp-failure gpu/0000:3b:00", "nodeguard clear gpu-gsp-failure 5"),
        epilog="Exit codes: 0 cleared; 3 not cleared, or the agent did not answer.",
    )
    add = parser.add_argument
    add("check", metavar="CHECK", help="check of the finding")
    add(
        "target",
        metavar="TARGET",
        help="target of the finding, such as gpu/0000:3b:00 or node; of a GPU also index or UUID",
    )
    add("--part", default="", metavar="ID", help="clear only while this component is in the target")
    add("--by", default=current_user(), metavar="NAME", help="name to record (default: current user)")
    add_socket(parser)
    return parser
