"""nodeguard gpus: GPU handles of an agent, here or of another node, closed for a reset or a driver change."""

from __future__ import annotations

import os
import re
import time
from argparse import Namespace
from functools import partial

from nodeguard.aggregator.api.requests import GpusRequest
from nodeguard.cli.aggregator_client import AggregatorClient, quote_name
from nodeguard.cli.local_agent import add_socket, default_socket, request, request_status
from nodeguard.cli.options import add_by, add_output
from nodeguard.cli.render.agent_status import detached_fields, detached_output
from nodeguard.cli.render.terminal import CHECK, format_view
from nodeguard.cli.streams import document_or_text, print_message, print_output
from nodeguard.cli.usage import OK, ArgumentParser, UsageError, duration
from nodeguard.fleet_api.view import fields_view
from nodeguard.model.instant import rfc3339
from nodeguard.model.target import function_address
from nodeguard.wire.instruction import MAX_DETACH_SECONDS, DetachGpus

# Seconds: detaching waits for the driver's current answer, and for the end of the worker that reads it.
_TIMEOUT = 150.0

_NO_AGENT = "if none runs on this machine, none holds a GPU: go on with the reset"

# Names of GPUs: the forms that nodeguard, lspci and nvidia-smi print. A GPU is function 0 of its PCI device.
_PREFIX = re.compile(r"^gpu[/ ]", re.IGNORECASE)
_INDEX = re.compile(r"[0-9]{1,3}")
_UUID = re.compile(r"GPU-(?P<id>[0-9a-f-]{8,40})", re.IGNORECASE)


def run(options: Namespace) -> int:
    """Run the command; returns its exit code. Raises UsageError."""
    match options.verb:
        case "detach":
            _detach(options)
        case "attach" if options.node:
            _ask_aggregator(options, 0)
        case "attach":
            request(options.socket, DetachGpus(_id(), 0.0), _TIMEOUT, without_agent=_NO_AGENT)
            print_output("The agent reads the GPUs again.")
        case "status":
            _print_status(options)
    return OK


def _detach(options: Namespace) -> None:
    named = tuple(map(gpu_name, options.gpu))
    if options.node:
        _ask_aggregator(options, max(1, round(options.duration)), named)
        return
    instruction = DetachGpus(_id(), options.duration, named)
    gpus = request(options.socket, instruction, _TIMEOUT, without_agent=_NO_AGENT)
    until = rfc3339(time.time() + options.duration)
    # The agent appends to the GPUs why a restart would lose this.
    print_message(f"The agent is detached until {until} from {gpus}; to end this: nodeguard gpus attach")


def _ask_aggregator(options: Namespace, seconds: int, gpus: tuple[str, ...] = ()) -> None:
    """Have the aggregator ask the agent of another node. Raises UsageError."""
    path = options.socket if options.socket != default_socket() else None
    client = AggregatorClient(Namespace(socket=path, command_line=options.command_line))
    body = GpusRequest(seconds, gpus, options.by)
    client.post_and_print(f"nodes/{quote_name(options.node)}/gpus", body, "text")


def gpu_name(text: str) -> str:
    """Return a GPU in the form that the agent uses: its PCI address `0000:3b:00`, its index `3` or its UUID.

    text: `0000:3b:00`, `gpu/0000:3b:00`, `GPU 0000:3b:00`, `3b:00.0`, or `00000000:3B:00.0`, `3`, `GPU 3` and
    `GPU-5c8f0005-...` of nvidia-smi. Raises UsageError for any other.
    """
    name = _PREFIX.sub("", text.strip())
    address = function_address(name) or ""
    if address.endswith(".0"):
        return address.removesuffix(".0")
    if _INDEX.fullmatch(name) is not None:
        return str(int(name))
    if (match := _UUID.fullmatch(name)) is not None:
        return f"GPU-{match['id'].lower()}"
    raise UsageError(
        f"GPU '{text}' is not an index, UUID or PCI address: write it like 3, GPU-5c8f0005-... or "
        "0000:3b:00; nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv lists them"
    )


def _print_status(options: Namespace) -> None:
    status = request_status(options.socket)
    view = fields_view(detached_fields(status))
    print_output(document_or_text(detached_output(status), options.output, lambda: format_view(view, CHECK)))


def _id() -> str:
    return f"detach-{os.getpid()}-{time.time():.0f}"


def build_parser() -> ArgumentParser:
    """Return the parser of the command."""
    parser = ArgumentParser(
        prog="nodeguard gpus",
        description="Detach an agent from its GPUs, for a GPU reset or a driver change: on this machine, or "
        "with --node on another one.",
        examples=(
            "nodeguard gpus detach --gpu 5 --duration 30m",
            "nodeguard gpus attach",
            "nodeguard gpus status",
            "nodeguard gpus detach --node gpu-7 --duration 30m",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="detach | attach | status", required=True)
    detach = verbs.add_parser(
        "detach",
        help="close all GPU handles of the agent for a while",
        description="Close the agent's handles of /dev/nvidia*, and do not read the GPUs for a while. "
        "Returns once the agent holds no handle any more.",
    )
    detach.add_argument(
        "-d", "--duration", metavar="TIME", type=partial(duration, longest=MAX_DETACH_SECONDS), required=True,
        help="how long, at most 1d: 30m",
    )  # fmt: skip
    detach.add_argument(
        "--gpu", metavar="GPU", action="append", default=[],
        help="only this GPU: index, UUID or PCI address, as nodeguard and nvidia-smi print them (repeatable)",
    )  # fmt: skip
    attach = verbs.add_parser(
        "attach",
        help="read the GPUs again now",
        description="Read all GPUs again now, before the time is over, also those that did not answer.",
    )
    status = verbs.add_parser(
        "status",
        help="show which GPUs are detached, and until when",
        description="Show which GPUs are detached from the agent, and until when.",
    )
    for part in (detach, attach):
        part.add_argument(
            "--node", metavar="NAME", default="",
            help="of this node, by its aggregator: --socket is that of the aggregator then; returns at once",
        )  # fmt: skip
        add_by(part)
    add_output(status, "text", "json", "yaml")
    for part in (detach, attach, status):
        add_socket(part)
    return parser
