"""nodeguard gpus: GPU handles of this machine's agent, closed for a reset or a driver change."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from nodeguard.cli.gpu_names import gpu_address
from nodeguard.cli.local_agent import add_socket, request
from nodeguard.cli.streams import print_output
from nodeguard.cli.timestamps import rfc3339
from nodeguard.cli.usage import OK, ArgumentParser, duration
from nodeguard.wire.instruction import DetachGpus

SUMMARY = "detach the agent from GPUs for a reset"
GROUP = "Node"

# Seconds: detaching waits for the driver's current answer, and for the end of the worker that reads it.
_TIMEOUT = 150.0


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    instruction = DetachGpus(
        f"release-{os.getpid()}-{time.time():.0f}",
        options.duration if options.verb == "detach" else 0.0,
        tuple(map(gpu_address, options.gpu)) if options.verb == "detach" else (),
    )
    answer = request(options.socket, instruction, _TIMEOUT)
    if options.verb == "attach":
        print_output("The agent reads the GPUs again.")
    else:
        until = rfc3339(time.time() + options.duration)
        print_output(f"The agent is detached from {answer} until {until}; to end this: nodeguard gpus attach")
    return OK


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard gpus",
        description="Detach this machine's agent from its GPUs, for a GPU reset or a driver change.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="detach | attach", required=True)
    detach = verbs.add_parser(
        "detach",
        help="close all GPU handles of the agent for a while",
        description="Close the agent's handles of /dev/nvidia*, and do not read the GPUs for a while. "
        "Returns once "
        "the agent holds no handle any more.",
    )
    detach.add_argument(
        "-d", "--duration", metavar="TIME", type=duration, required=True, help="how long, at most 1d: 30m"
    )
    detach.add_argument(
        "--gpu", metavar="GPU", action="append", default=[],
        help="only this GPU, by PCI address such as 0000:3b:00 (repeatable)",
    )  # fmt: skip
    attach = verbs.add_parser(
        "attach",
        help="read the GPUs again now",
        description="Read the GPUs again now, before the time is over.",
    )
    for part in (detach, attach):
        add_socket(part)
    return parser
