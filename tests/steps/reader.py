"""A reader of a page, who runs its steps in their order on a machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.docs.pages import blocks
from tests.docs.ran import one_line, record_command
from tests.steps.machine import Machine
from tests.waiting import until

NO_CODES: Mapping[str, Collection[int]] = MappingProxyType({})

NO_TEXTS: Mapping[str, str] = MappingProxyType({})

# Exit code of a command about a node, incident or aggregator that is not there yet.
_NOT_YET = 3

# What the log of a service has once it can be used.
_READY = {"agent": '"agent started"', "aggregator": "listens for agents"}


class Reader:
    """Runs the commands of pages. A service runs until the reader starts the next of its kind, or closes it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._services: dict[str, ExitStack] = {}
        self.logs: dict[str, Path] = {}

    def follow(
        self,
        page: str,
        *sections: str,
        codes: Mapping[str, Collection[int]] = NO_CODES,
        shows: Mapping[str, str] = NO_TEXTS,
        files: Sequence[str] = (),
        leave_out: str = "",
        names: Mapping[str, str] = NO_TEXTS,
    ) -> dict[str, str]:
        """Run the commands of a page, or of some sections, and return the output of each.

        codes: exit codes of commands that may end with others than 0. shows: text that the output of a command begins
        with or has once the services have done their work, in any number of lines; it is repeated until then. files: the file to which the text in each block
        with a language is appended, in their order. leave_out: pattern of the commands that another test runs; a
        pattern that matches none fails. names: what the reader writes in place of a text of the page, such as DIR.
        """
        outputs: dict[str, str] = {}
        texts = list(files)
        left_out = not leave_out
        for block in [found for section in sections or ("",) for found in blocks(page, section)]:
            if block.language in {"yaml", "json", "ini"}:
                path = self.machine.path(texts.pop(0))
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a") as file:
                    file.write(block.text)
            for _, printed in block.command_lines():
                command = re.sub(r"\s+# .*", "", printed)
                if leave_out and re.search(leave_out, command):
                    left_out = True
                    continue
                record_command(printed)
                written = replaced(command, names)
                if kind := _service(command):
                    self.start(kind, written)
                else:
                    outputs[command] = self._run(written, codes.get(command, (0,)), shows.get(command))
        assert texts == []
        assert left_out, f"{page} has no command '{leave_out}'"
        return outputs

    def run_printed(
        self,
        page: str,
        pattern: str,
        *,
        names: Mapping[str, str] = NO_TEXTS,
        more: str = "",
        accept: Collection[int] = (0,),
    ) -> dict[str, str]:
        """Run the commands of a page that match a pattern, and return their output. more: arguments that are added."""
        lines = [line for block in blocks(page) for _, line in block.command_lines()]
        matching = [line for line in lines if re.search(pattern, line)]
        assert matching, f"{page} has no command '{pattern}'"
        outputs = {}
        for printed in matching:
            record_command(printed)
            command = f"{replaced(printed, names)} {more}".strip()
            if kind := _service(command):
                self.start(kind, command)
            else:
                outputs[one_line(printed)] = self._run(command, accept, None)
        return outputs

    def _run(self, command: str, codes: Collection[int], text: str | None) -> str:
        if text is None:
            return self.machine.run(command, codes)
        output = ""

        def is_shown() -> bool:
            nonlocal output
            output = self.machine.run(command, (*codes, _NOT_YET))
            return joined(text) in joined(output)

        until(is_shown, lambda: f"{command} does not show '{joined(text)}':\n{output}", every=0.2)
        return output

    def start(self, kind: str, command: str) -> None:
        """Start an agent or an aggregator in place of the one before."""
        self.close(kind)
        self._services[kind] = ExitStack()
        self.logs[kind] = self._services[kind].enter_context(self.machine.running(command, _READY[kind]))

    def close(self, *kinds: str) -> None:
        """End services that run."""
        for kind in kinds:
            self._services.pop(kind, ExitStack()).close()


def replaced(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names; each has to be in it as a word or not at all."""
    for name, value in names.items():
        text = re.sub(rf"(?<![\w/-]){re.escape(name)}(?![\w-])", value, text)
    return text


def joined(text: str) -> str:
    """Return a text in one line: a page breaks lines elsewhere than a terminal."""
    return " ".join(text.split())


@contextmanager
def reading(machine: Machine) -> Iterator[Reader]:
    """Let a reader run services until the end of the block."""
    reader = Reader(machine)
    try:
        yield reader
    finally:
        reader.close(*_READY)


def _service(command: str) -> str:
    """Return the kind of the service that a command runs; empty for a command that ends."""
    words = shlex.split(command)
    return words[1] if words[0] == "nodeguard" and words[1] in _READY else ""
