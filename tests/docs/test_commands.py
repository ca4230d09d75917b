"""Each command that the documentation prints is accepted as printed: by the parsers, units, manifests and files."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NoReturn

import pytest
import yaml

from nodeguard.cli.main import main
from nodeguard.cli.plugin.options import split_options
from nodeguard.cli.usage import ArgumentParser
from tests.alerts.rules import alerts
from tests.cli.parsed_options import agent_options, aggregator_options
from tests.daemonset.helm import CHART
from tests.daemonset.manifests import DAEMONSET, NAMESPACE, documents
from tests.daemonset.pods import pod
from tests.daemonset.units import BINARY, UNITS, shipped
from tests.docs.pages import PAGES, PROGRAMS, Command, commands, inline, text
from tests.paths import ROOT

Check = Callable[[Sequence[str]], None]

CHART_NAME = yaml.safe_load((CHART / "Chart.yaml").read_text())["name"]
HELM_VERBS = {"install", "upgrade", "rollback", "test", "uninstall", "template"}
KINDS = {"deploy": "Deployment", "deployment": "Deployment", "ds": "DaemonSet", "daemonset": "DaemonSet"}


class AcceptedError(Exception):
    """A command line that its parser accepts; the command itself is not run."""


class RefusedError(Exception):
    """A command line that its parser refuses, with its message."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each command end once its parser has accepted or refused the command line."""
    for name in ("parse_args", "parse_intermixed_args"):
        original = getattr(ArgumentParser, name)

        def accept(
            self: ArgumentParser, words: Sequence[str], of: Callable[..., object] = original
        ) -> object:
            of(self, words)
            raise AcceptedError

        monkeypatch.setattr(ArgumentParser, name, accept)

    def refuse(_: ArgumentParser, message: str) -> NoReturn:
        raise RefusedError(message)

    monkeypatch.setattr(ArgumentParser, "error", refuse)


def refusal(words: Sequence[str]) -> str:
    """Return why nodeguard refuses a command line; empty where it accepts it. Use with `parse_only`."""
    try:
        code = main(words)
    except AcceptedError:
        return ""
    except RefusedError as refused:
        return str(refused)
    return "" if code == 0 else "it has no such command"


def nodeguard(words: Sequence[str]) -> None:
    assert refusal(words) == ""


def kubectl(words: Sequence[str]) -> None:
    """Each object that is named is in the manifests, and a command for a pod or the plug-in is accepted by nodeguard."""
    if words[0] == "nodeguard":
        nodeguard(split_options(words[1:])[1])
        return
    before, dashes, inner = _cut(words, "--")
    if dashes:
        program, *arguments = inner
        if program == "python":  # of the image; a test of the page runs its program
            return
        assert program == "nodeguard"
        nodeguard(arguments)
    objects = {(made["kind"], made["metadata"]["name"]) for made in documents()}
    for option, word in pairwise(before):
        kind, slash, name = word.partition("/")
        if option in {"-k", "-f"}:
            assert word == "-" or (ROOT / word).is_dir()
        elif slash and kind in KINDS:
            assert (KINDS[kind], name) in objects
        elif option == "-n":
            assert word == NAMESPACE
    if "configmap" in before:
        assert before[before.index("configmap") + 1] in config_maps()
    if before[0] == "get" and not before[1].startswith("-"):
        assert before[1] in resources()


def helm(words: Sequence[str]) -> None:
    """The chart exists, and so does each value that is set."""
    verb, release, *rest = words
    assert (verb in HELM_VERBS, release) == (True, "nodeguard")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for option, word in pairwise(rest):
        if option == "-n":
            assert word == NAMESPACE
        elif option in {"--set", "--set-file"}:
            section: object = values
            for key in re.split(r"(?<!\\)\.", word.partition("=")[0]):
                if section == {}:
                    break  # a map with keys of the site
                assert isinstance(section, dict)
                section = section[key]
    if verb in {"install", "upgrade", "template"}:
        assert rest[0] == f"oci://REGISTRY/charts/{CHART_NAME}" or ROOT / rest[0] == CHART


def config_maps() -> set[str]:
    """The ConfigMaps that the pods mount."""
    volumes = [
        *pod("DaemonSet", "nodeguard-agent")["volumes"],
        *pod("Deployment", "nodeguard-aggregator")["volumes"],
    ]
    return {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}


def resources() -> set[str]:
    """The plural names of nodeguard's own resources."""
    return {
        made["spec"]["names"]["plural"] for made in documents() if made["kind"] == "CustomResourceDefinition"
    }


def systemctl(words: Sequence[str]) -> None:
    verb, *rest = words
    units = [f"{word.removesuffix('.service')}.service" for word in rest if not word.startswith("-")]
    assert set(units) <= set(UNITS)
    assert bool(units) == (verb != "daemon-reload")


def journalctl(words: Sequence[str]) -> None:
    if words[0] == "-t":
        assert f"logger -t {words[1]} " in (DAEMONSET / "slurm/nodeguard-healthcheck").read_text()
        return
    if "-k" in words:  # the log of the kernel
        return
    assert f"{words[words.index('-u') + 1]}.service" in UNITS


def install(words: Sequence[str]) -> None:
    """A shipped file is there, and goes to its own path; systemd's units to those of the administrator."""
    if "-d" in words:
        return
    *_, source, target = words
    if not source.startswith("daemonset/"):
        assert target == f"/etc/nodeguard/{source}"
    elif source.endswith(".service"):
        assert (ROOT / source).is_file()
        assert target == f"/etc/systemd/system/{source.removeprefix('daemonset/')}"
    elif source.startswith("daemonset/slurm/"):
        assert os.access(ROOT / source, os.X_OK)
        assert target == f"/etc/slurm/{source.removeprefix('daemonset/slurm/')}"
    else:
        assert shipped()[target] == ROOT / source


def ln(words: Sequence[str]) -> None:
    """A program of the package is put where a shell of root finds it under the name that the documentation uses."""
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    directory = BINARY.rpartition("/")[0]
    assert words[-2:] in [[f"{directory}/{name}", f"/usr/local/bin/{name}"] for name in programs]


def pip(words: Sequence[str]) -> None:
    if words[1:] == ["gpu_nodeguard-VERSION-py3-none-any.whl"]:
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[0] == "install"
    named = words[1].removeprefix(".").removeprefix("[").removesuffix("]")
    assert {*filter(None, named.split(","))} <= set(extras)


def docker(words: Sequence[str]) -> None:
    file = ROOT / words[words.index("--file") + 1]
    if "--target" in words:
        assert re.search(rf" AS {words[words.index('--target') + 1]}$", file.read_text(), re.MULTILINE)
        return
    arguments = [word.partition("=")[0] for option, word in pairwise(words) if option == "--build-arg"]
    assert set(arguments) <= set(re.findall(r"^ARG (\w+)", file.read_text(), re.MULTILINE))
    image = words[words.index("--tag") + 1].removeprefix("REGISTRY/")
    images = yaml.safe_load((DAEMONSET / "kustomization.yaml").read_text())["images"]
    assert image in {f"{entry['name']}:{entry['newTag']}" for entry in images}


def make(words: Sequence[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


CHECKS: dict[str, Check] = {
    "nodeguard": nodeguard,
    BINARY: nodeguard,
    "/opt/nodeguard/bin/pip": pip,
    "kubectl": kubectl,
    "helm": helm,
    "systemctl": systemctl,
    "journalctl": journalctl,
    "install": install,
    "ln": ln,
    "docker": docker,
    "make": make,
}
# Programs with command lines of their own; an end-to-end test runs those of openssl.
OTHERS = PROGRAMS - CHECKS.keys()


def _cut(words: Sequence[str], at: str) -> tuple[Sequence[str], bool, Sequence[str]]:
    if at not in words:
        return words, False, ()
    place = list(words).index(at)
    return words[:place], True, words[place + 1 :]


def starts_a_service(command: Command) -> bool:
    return command.words[:2] in {("nodeguard", "agent"), ("nodeguard", "aggregator")}


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_printed_command_is_accepted(command: Command) -> None:
    program, *words = command.words
    assert program in PROGRAMS
    if program not in OTHERS:
        CHECKS[program](words)  # asserts


@pytest.mark.parametrize("command", [command for command in commands() if starts_a_service(command)], ids=str)
def test_the_options_of_the_services_fit_together(command: Command) -> None:
    files = shipped()
    _, service, *words = command.words
    if service == "agent":
        assert agent_options([str(files.get(word, word)) for word in words])
    else:
        assert aggregator_options(words)


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("page", PAGES)
def test_a_command_in_a_sentence_exists_and_has_its_options(page: str) -> None:
    # A sentence may leave out what a command cannot do without.
    for _, *words in inline(page):
        assert re.search(r"^$|are required|expected one argument", refusal(words)), words


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("component", ["agent", "node", "aggregator"])
def test_a_command_in_an_alert_runs(component: str) -> None:
    for rule in alerts(component):
        texts = " ".join(rule["annotations"].values())
        named = re.sub(r"\{\{ \$labels\.(?:incident|node) \}\}", "NAME", texts)
        for printed in re.findall(r"`nodeguard ([^`]+)`", named):
            words = printed.split()
            assert refusal(words) == "", (rule["alert"], printed)
            # `explain` accepts any word, and ends with an error if it is neither a check nor an Xid.
            assert words[0] != "explain" or words[1:] == ["CHECK"], (rule["alert"], printed)


@pytest.mark.parametrize("page", PAGES)
def test_systemctl_and_journalctl_in_a_sentence_name_a_unit(page: str) -> None:
    for program, words in re.findall(r"`(systemctl|journalctl) ([^`]+)`", text(page)):
        assert program in CHECKS
        CHECKS[program](words.split())  # asserts


def test_each_kind_of_command_is_printed_somewhere() -> None:
    assert {command.words[0] for command in commands()} >= {"nodeguard", "kubectl", "systemctl", "install"}
