"""A new operator with a clone, a kubeconfig and the documentation: runs the commands that its pages print."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.controlplane.programs import program
from tests.docs.pages import printed_lines, text
from tests.docs.ran import record_command
from tests.paths import ROOT
from tests.waiting import PATIENCE, PROMPTLY

NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Operator:
    """Runs commands in a directory with the chart of the clone, as the administrator of a cluster.

    report: what is shown of the cluster if a command does not end. names: placeholders of the pages and what the
    operator writes instead, such as {"gpu-7": "node-1"}. environment: more variables of the commands.
    """

    def __init__(
        self,
        kubeconfig: Path,
        report: Callable[[], str],
        directory: Path,
        names: Mapping[str, str],
        environment: Mapping[str, str] = NO_NAMES,
    ) -> None:
        self._report = report
        self._names = names
        self._directory = directory / "clone"
        self._directory.mkdir()
        (self._directory / "daemonset").symlink_to(ROOT / "daemonset")
        commands = directory / "bin"
        commands.mkdir()
        for name in ("kubectl", "helm"):
            (commands / name).symlink_to(program(name))
        script = commands / "nodeguard"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeguard.cli.main "$@"\n')
        script.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(directory),
            "KUBECACHEDIR": str(directory / "kubectl"),
            "KUBECONFIG": str(kubeconfig),
            **environment,
        }

    def write(self, name: str, content: str) -> None:
        """Write a file of the working directory."""
        (self._directory / name).write_text(content)

    def run(
        self,
        page: str,
        printed: str,
        names: Mapping[str, str] = NO_NAMES,
        accept: Collection[int] = (0,),
        answer: str = "",
    ) -> str:
        """Run a command line that a page prints, and return its output, or the error of one that prints nothing
        else. Fails on other exit codes.

        names: more placeholders. answer: what the operator types at a terminal; empty for no terminal.
        """
        return self._run(self._command(page, printed, names), accept, answer)

    def run_in(self, pod: str, page: str, printed: str, names: Mapping[str, str] = NO_NAMES) -> str:
        """Run a command of nodeguard in a container, as the page describes it, and return its output.

        pod: what the page puts before the command; with placeholders.
        """
        assert pod in " ".join(text(page).split()), f"{page} does not describe where to run {printed}"
        return self._run(f"{self._fill(pod, names)} {self._command(page, printed, names)}", (0,))

    @contextmanager
    def running(self, page: str, printed: str) -> Iterator[None]:
        """Run a command that a page prints until the end of the block."""
        with subprocess.Popen(
            ["bash", "-c", f"exec {self._command(page, printed, NO_NAMES)}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                yield
            finally:
                process.terminate()
                process.wait(PROMPTLY)

    def _command(self, page: str, printed: str, names: Mapping[str, str]) -> str:
        """Return a command that a page prints, with the names of this site."""
        assert printed in printed_lines(page), f"{page} does not print: {printed}"
        record_command(printed)
        return self._fill(printed, names)

    def _fill(self, command: str, names: Mapping[str, str]) -> str:
        for name, value in {**self._names, **names}.items():
            command = re.sub(rf"(?<![\w/-]){re.escape(name)}(?![\w-])", value, command)
        return command

    def _run(self, command: str, accept: Collection[int], answer: str = "") -> str:
        keyboard, terminal = pty.openpty() if answer else (None, None)
        if keyboard is not None:
            os.write(keyboard, answer.encode())
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                stdin=terminal,
                cwd=self._directory,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            output = b"".join(filter(None, (error.stdout, error.stderr))).decode(errors="replace")
            raise AssertionError(
                f"{command}: not finished after {PATIENCE:g} s\n{output}{self._report()}"
            ) from None
        finally:
            for descriptor in filter(None, (keyboard, terminal)):
                os.close(descriptor)
        assert done.returncode in accept, (
            f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout or done.stderr
