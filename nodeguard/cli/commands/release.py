"""nodeguard release: the agent of this machine lets go of the GPUs for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from nodeguard.cli.local_agent import add_socket, asked
from nodeguard.cli.streams import print_output
from nodeguard.cli.timestamps import rfc3339
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.wire.instruction import DetachGpus

# Letting go waits for what the driver is asked just now, and for its reader's end.
_WITHIN = 150.0


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    parser = ArgumentParser(
        prog="nodeguard release",
        description="Have the agent let go of /dev/nvidia*, for a reset or another driver.",
    )
    add = parser.add_argument
    add("--for", dest="time", metavar="TIME", type=duration, help="how long, a day at most: 30m")
    add("--gpu", metavar="SLOT", action="append", default=[], help="this GPU alone, such as 0000:3b:00")
    add("--end", action="store_true", help="take them back now")
    add_socket(parser)
    options = parser.parse_args(arguments)
    if options.end == (options.time is not None):
        raise UsageError("say for how long, as --for 30m, or --end")
    if options.end and options.gpu:
        raise UsageError("--end takes back all GPUs: leave --gpu away")
    wanted = DetachGpus(f"release-{os.getpid()}-{time.time():.0f}", options.time or 0.0, tuple(options.gpu))
    said = asked(options.socket, wanted, _WITHIN)
    if options.end:
        print_output("The agent watches the GPUs again.")
    else:
        until = rfc3339(time.time() + options.time)
        print_output(
            f"The agent has let go of {said} until {until}; nodeguard release --end ends that before."
        )
    return OK
