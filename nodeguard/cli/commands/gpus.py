"""nodeguard gpus: GPU handles of this machine's agent, closed for a reset or a driver change."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Sequence

from nodeguard.cli.gpu_names import gpu_name
from nodeguard.cli.local_agent import add_socket, request, request_status
from nodeguard.cli.options import add_output
from nodeguard.cli.render.agent_status import detached_lines, detached_output
from nodeguard.cli.render.terminal import format_lines
from nodeguard.cli.streams import print_output, to_json, to_yaml
from nodeguard.cli.usage import OK, ArgumentParser, duration
from nodeguard.model.instant import rfc3339
from nodeguard.wire.instruction import DetachGpus

SUMMARY = "detach the agent from GPUs for a reset"
GROUP = "Node"

# Seconds: detaching waits for the driver's current answer, and for the end of the worker that reads it.
_TIMEOUT = 150.0


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    options = _parser().parse_args(arguments)
    match options.verb:
        case "detach":
            _detach(options)
        case "attach":
            request(options.socket, DetachGpus(_id(), 0.0), _TIMEOUT)
            print_output("The agent reads the GPUs again.")
        case "status":
            _print_status(options)
    return OK


def _detach(options: Namespace) -> None:
    instruction = DetachGpus(_id(), options.duration, tuple(map(gpu_name, options.gpu)))
    gpus = request(options.socket, instruction, _TIMEOUT)
    until = rfc3339(time.time() + options.duration)
    print_output(f"The agent is detached from {gpus} until {until}; to end this: nodeguard gpus attach")


def _print_status(options: Namespace) -> None:
    status = request_status(options.socket)
    match options.output:
        case "json":
            print_output(to_json(detached_output(status)))
        case "yaml":
            print_output(to_yaml(detached_output(status)))
        case _:
            print_output(format_lines(detached_lines(status)))


def _id() -> str:
    return f"detach-{os.getpid()}-{time.time():.0f}"


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nodeguard gpus",
        description="Detach this machine's agent from its GPUs, for a GPU reset or a driver change.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="detach | attach | status", required=True)
    detach = verbs.add_parser(
        "detach",
        help="close all GPU handles of the agent for a while",
        description="Close the agent's handles of /dev/nvidia*, and do not read the GPUs for a while. "
        "Returns once the agent holds no handle any more.",
    )
    detach.add_argument(
        "-d", "--duration", metavar="TIME", type=duration, required=True, help="how long, at most 1d: 30m"
    )
    detach.add_argument(
        "--gpu", metavar="GPU", action="append", default=[],
        help="only this GPU: index, UUID or PCI address, as nodeguard and nvidia-smi print them (repeatable)",
    )  # fmt: skip
    attach = verbs.add_parser(
        "attach",
        help="read the GPUs again now",
        description="Read the GPUs again now, before the time is over.",
    )
    status = verbs.add_parser(
        "status",
        help="show which GPUs are detached, and until when",
        description="Show which GPUs are detached from the agent, and until when.",
    )
    add_output(status, "text", "json", "yaml")
    for part in (detach, attach, status):
        add_socket(part)
    return parser
