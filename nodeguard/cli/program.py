"""The program as the caller types it: `nodeguard`, or `kubectl nodeguard` with the options of a cluster.

Texts name commands of `nodeguard`, also in the pod in which the plug-in runs them: there the caller's
program is in the environment, which works with a pod of any version. The output replaces the names in one
place; the texts would otherwise need the program in each function that makes one.
"""

from __future__ import annotations

import os
import re

# The environment variable with the program.
PROGRAM = "NODEGUARD_PROGRAM"

# Commands that the plug-in runs for the cluster, or for the catalogue. Others are for the node itself.
_COMMAND = re.compile(
    r"(?<![\w/.-])(?<!kubectl )nodeguard "
    r"(?=(?:COMMAND|--help|describe|doctor --cluster|drain|explain|get|history|incidents|pause|report|resume"
    r"|unmark|status(?! --agent)|gpus [^:;,]*--node)\b)"
)


def as_typed(text: str) -> str:
    """Return a text with the commands in it as the caller types them."""
    program = os.environ.get(PROGRAM, "")
    return _COMMAND.sub(lambda _: f"{program} ", text) if program else text
