"""Where the plug-in runs each command, and its own options."""

from __future__ import annotations

from importlib import import_module

import pytest

from nodeguard.cli.commands import COMMANDS
from nodeguard.cli.parser_tree import read_parsers
from nodeguard.cli.plugin.options import ClusterOptions, split_options
from nodeguard.cli.plugin.routes import RECORDS_OPERATOR, Route, is_local, route
from nodeguard.cli.usage import UsageError
from tests.cli.test_dispatch import walk
from tests.paths import ROOT

LAPTOP = ROOT / "docs" / "tasks" / "use-from-a-laptop.md"

PLACES = {
    "check": None,
    "explain ecc": None,
    "policy check policy.yaml": None,
    "version": None,
    "doctor --cluster": None,
    "get checks": Route.HERE,
    "unmark --all --without-aggregator": Route.HERE,
    "get incidents -n gpu-7": Route.INCIDENTS,
    "describe incident NAME": Route.INCIDENTS,
    "describe incident/NAME": Route.INCIDENTS,
    "get nodes": Route.NODES,
    "get nodes --marked --work cordoned -l pool=a -o wide": Route.NODES,
    "get nodes --unhealthy": Route.POD,
    "get nodes --health fatal": Route.POD,
    "get nodes --work faulty": Route.POD,
    "get nodes --sort-by last_report_age": Route.POD,
    "get nodes --field-selector pool!=a": Route.POD,
    "get gpus": Route.POD,
    "describe gpu-7": Route.NODES,
    "describe node/gpu-7": Route.NODES,
    "describe domain rack/r1": Route.POD,
    "unmark gpu-7": Route.POD,
    "drain node gpu-7 --dry-run": Route.POD,
    "incidents clear NAME": Route.DECISION,
    "report": Route.POD,
    "status": Route.POD,
    "gpus detach -d 30m --node gpu-7": Route.POD,
    "gpus detach -d 30m": Route.NODE,
    "gpus status": Route.NODE,
    "status --agent": Route.NODE,
    "clear gpu-lost node": Route.NODE,
    "inject gpu-lost": Route.NODE,
    "--on gpu-7 check": Route.NODE,
    "--on gpu-7 doctor": Route.NODE,
    "--on gpu-7 doctor --cluster": Route.HERE,
    "--on gpu-7 check --from DIR": Route.HERE,
    "--on gpu-7 explain ecc": None,
}


@pytest.mark.parametrize(("line", "place"), PLACES.items())
def test_each_command_has_its_place(line: str, place: Route | None) -> None:
    cluster, (name, *words) = split_options(line.split())
    assert is_local(name, has_node=bool(cluster.node)) == (place is None)
    if place is not None:
        parser = import_module(f"nodeguard.cli.commands.{name}").build_parser()
        assert route(name, parser.parse_args(words)) == place


def test_a_command_that_asks_an_aggregator_or_an_agent_is_not_local() -> None:
    asking = {
        command.words[0]
        for command in walk(read_parsers())
        for option in command.options
        if "--socket" in option.flags and command.words[0] not in {"agent", "aggregator", "doctor"}
    }
    assert asking <= {command.name for command in COMMANDS if not is_local(command.name)}


def test_each_command_that_records_its_operator_gets_the_name_of_the_user() -> None:
    assert {
        command.words[0]
        for command in walk(read_parsers())
        for option in command.options
        if "--by" in option.flags and ("your name" in option.about or "name to record" in option.about)
    } == RECORDS_OPERATOR


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        ("status", ClusterOptions(), "status"),
        ("-n gpu --context=prod status", ClusterOptions("gpu", "prod"), "status"),
        ("status --context prod --kubeconfig f", ClusterOptions("nodeguard", "prod", "f"), "status"),
        ("-n gpu get incidents -n gpu-7", ClusterOptions("gpu"), "get incidents -n gpu-7"),
        (
            "--as ada status --as-group=sre --as-group gpu",
            ClusterOptions(user="ada", groups=("sre", "gpu")),
            "status",
        ),
        ("--on gpu-7 status --agent", ClusterOptions(node="gpu-7"), "status --agent"),
        ("unmark -- --context", ClusterOptions(), "unmark -- --context"),
        ("unmark --as ada -- --as eve", ClusterOptions(user="ada"), "unmark -- --as eve"),
        ("unmark namespace context=x", ClusterOptions(), "unmark namespace context=x"),
    ],
)
def test_its_own_options_are_anywhere(line: str, options: ClusterOptions, command: str) -> None:
    assert split_options(line.split()) == (options, command.split())


@pytest.mark.parametrize("line", ["--context", "--context= status", "status --namespace", "status --as"])
def test_an_option_without_a_value_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="has no value: write --"):
        split_options(line.split())


def test_groups_without_a_user_are_refused() -> None:
    with pytest.raises(UsageError, match="--as-group needs a user: add --as NAME"):
        split_options(["status", "--as-group", "sre"])


def test_kubectl_gets_the_options_that_are_set() -> None:
    assert list(ClusterOptions("gpu", "", "f").kubectl_options()) == ["--namespace=gpu", "--kubeconfig=f"]
    assert list(ClusterOptions(user="ada", groups=("sre", "gpu")).kubectl_options()) == [
        *("--namespace=nodeguard", "--as=ada", "--as-group=sre", "--as-group=gpu")
    ]


def test_the_page_of_the_laptop_names_each_command_that_asks_the_fleet() -> None:
    page = LAPTOP.read_text()
    asked = {command.name for command in COMMANDS if not is_local(command.name)}
    assert {name for name in asked if f"`{name}`" not in page} == set()
