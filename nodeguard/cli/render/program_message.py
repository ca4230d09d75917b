"""Explanations of messages of programs, such as errors of CUDA and NCCL. Pure."""

from __future__ import annotations

from nodeguard.fleet_api.text.check import check_list, explanation
from nodeguard.fleet_api.view import Field, View
from nodeguard.model.catalogue import Catalogue, ProgramMessage

_CAUSES = {
    "program": "the program, as a rule: this is no fault of the hardware",
    "configuration": "a setting, a limit or other software, as a rule: this is no fault of the hardware",
    "machine": "the machine, as a rule",
    "either": "the program or the machine: the text does not decide it",
}


def program_message_view(catalogue: Catalogue, message: ProgramMessage) -> View:
    """Return the explanation of a message: its cause, the first step, and the checks of the machine."""
    facts = [Field("caused by", _CAUSES[message.cause]), Field("look first", message.first)]
    return explanation(
        "Message of a program", message.title, (*facts, *check_list(catalogue, message.checks))
    )
