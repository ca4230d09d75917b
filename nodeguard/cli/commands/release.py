"""nodeguard release: detach GPUs from the agent on this machine for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from nodeguard.cli.local_agent import add_socket, request
from nodeguard.cli.streams import print_output
from nodeguard.cli.timestamps import rfc3339
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.wire.instruction import DetachGpus

# Seconds for the answer: the agent waits for the present reading of the driver, and for its worker to end.
_TIMEOUT = 150.0


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard release",
        description="Have the agent close /dev/nvidia*, for a GPU reset or a driver update.",
    )
    add = parser.add_argument
    add("--for", dest="time", metavar="TIME", type=duration, help="for how long, a day at most: 30m")
    add("--gpu", metavar="TARGET", action="append", default=[], help="only this GPU, such as 0000:3b:00")
    add("--end", action="store_true", help="attach all GPUs now")
    add_socket(parser)
    options = parser.parse_args(arguments)
    if options.end == (options.time is not None):
        raise UsageError("a time is missing: write --for 30m, or --end")
    if options.end and options.gpu:
        raise UsageError("--end attaches all GPUs: leave --gpu out")
    identity = f"detach-{os.getpid()}-{time.time():.0f}"
    message = request(options.socket, DetachGpus(identity, options.time or 0.0, tuple(options.gpu)), _TIMEOUT)
    if options.end:
        print_output("The agent monitors the GPUs again.")
    else:
        until = rfc3339(time.time() + options.time)
        print_output(
            f"The agent has detached {message} until {until}; nodeguard release --end attaches them."
        )
    return OK
