"""Options that several commands take, and the validation of their values."""

from __future__ import annotations

import os
import pwd
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nodeguard.cli.streams import JSONPATH, print_error
from nodeguard.cli.usage import ArgumentParser, UsageError, did_you_mean, duration, url_base
from nodeguard.model.catalogue import Catalogue

if TYPE_CHECKING:
    from nodeguard.model.policy import Policy

# Folders of site checks, separated by colons, for every command that takes --checks.
CHECKS_ENVIRONMENT = "NODEGUARD_CHECKS"

# Other output formats of kubectl.
_TEMPLATES = ("jsonpath-as-json", "jsonpath-file", "go-template", "go-template-file", "custom-columns")

# The kubeconfig of kubectl.
USER_KUBECONFIG = "$KUBECONFIG, else ~/.kube/config"

# Socket of the agent, for every command that asks it.
AGENT_SOCKET_ENVIRONMENT = "NODEGUARD_AGENT_SOCKET"


def directory(text: str) -> str:
    """Return the name of a directory unchanged. Raises ArgumentTypeError for an empty one."""
    if not text.strip():
        raise ArgumentTypeError("the name of a directory is empty: write its path")
    return text


def add_output(parser: ArgumentParser, *formats: str, names: Sequence[str] = ("-o", "--output")) -> None:
    """Add -o, with some formats and jsonpath; the first is the default. `table` is another word for `text`.
    names: of the option.
    """
    parser.add_argument(
        *names, dest="output", choices=_Formats((*formats, JSONPATH)), default=formats[0], type=_format,
        metavar="FORMAT", help=f"output format: {', '.join(formats)}, {JSONPATH}TEMPLATE ({formats[0]})",
    )  # fmt: skip


class _Formats(tuple[str, ...]):
    """The choices of -o. A template is one of them."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return str(word).startswith(JSONPATH) or super().__contains__(word)


def _format(word: str) -> str:
    """Return an output format. Raises ArgumentTypeError for an invalid template and for kubectl's others."""
    name, _, template = word.partition("=")
    if name == JSONPATH.rstrip("="):
        from nodeguard.cli.jsonpath import Template, TemplateError  # noqa: PLC0415 - one format of several

        try:
            Template(template)
        except TemplateError as error:
            raise ArgumentTypeError(f"{name}: {error}") from None
        return word
    if name in _TEMPLATES:
        remedy = "write -o jsonpath='{.nodes[*].node}', or pipe -o json to jq"
        raise ArgumentTypeError(f"'{name}' is not supported: {remedy}")
    return "text" if word == "table" else word


def add_by(parser: ArgumentParser) -> None:
    """Add --by."""
    about = "your name, for the audit trail (default: the current user)"
    parser.add_argument("--by", default=current_user(), type=_operator, metavar="NAME", help=about)


def _operator(name: str) -> str:
    """Return the name of an operator unchanged. Raises ArgumentTypeError for one that is too long."""
    from nodeguard.aggregator.api.requests import MAX_BY  # noqa: PLC0415 - for commands that ask an aggregator

    if len(name) > MAX_BY:
        raise ArgumentTypeError(f"a name has at most {MAX_BY} characters: this one has {len(name)}")
    return name


def default_folders() -> tuple[str, ...]:
    """Return the folders of site checks in the environment."""
    return tuple(path for path in os.environ.get(CHECKS_ENVIRONMENT, "").split(":") if path)


def add_checks(parser: ArgumentParser) -> None:
    """Add --checks."""
    default = list(default_folders())
    about = f"add or override checks from this directory (repeatable; default: ${CHECKS_ENVIRONMENT})"
    parser.add_argument(
        "--checks", metavar="DIR", type=directory, action="append", default=default, help=about
    )


def add_runbook_url_base(parser: ArgumentParser) -> None:
    """Add --runbook-url-base."""
    about = "link findings to a site's own pages: URL followed by the id of the check"
    parser.add_argument("--runbook-url-base", metavar="URL", type=url_base, help=about)


def add_family(parser: ArgumentParser) -> None:
    """Add --family, several times or with several families."""
    about = "run only the checks of these families (repeatable)"
    parser.add_argument("-f", "--family", metavar="FAMILY,…", action="append", default=[], help=about)


def add_root(parser: ArgumentParser) -> None:
    """Add --root."""
    about = "directory that is the machine's root (/)"
    parser.add_argument("--root", metavar="DIR", type=directory, help=about)


def add_machine(parser: ArgumentParser) -> None:
    """Add the options of a command that reads a machine once: --platform, --instance-type and --timeout."""
    add_site(parser)
    about = "timeout of each data source (60s)"
    parser.add_argument("--timeout", metavar="TIME", type=duration, default=60.0, help=about)


def add_kubeconfig(parser: ArgumentParser, condition: str, default: str) -> None:
    """Add --kubeconfig and --context. condition: of their use. default: of the former."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help=f"{condition}: kubeconfig (default: {default}, else the pod's service account)",
    )
    parser.add_argument(
        "--context", metavar="NAME", default="", help=f"{condition}: context of the kubeconfig"
    )


def require_for_kubeconfig(options: Namespace, option: str, *, is_set: bool) -> None:
    """Raise UsageError for --kubeconfig or --context without the option that uses them."""
    for name in ("kubeconfig", "context"):
        if getattr(options, name) and not is_set:
            raise UsageError(f"--{name} is for {option} only: add {option}, or remove --{name}")


def add_site(parser: ArgumentParser) -> None:
    """Add the options for facts that may not be detectable on a machine: --platform and --instance-type."""
    add = parser.add_argument
    add("--platform", metavar="ID", default="", help="platform id, if it is not detected")
    add("--instance-type", metavar="TYPE", default="", help="cloud instance type, if it is not detected")


def validate_platform(catalogue: Catalogue, platform: str, source: str = "platform") -> None:
    """Raise UsageError for an unknown platform; an empty one is valid. source: where it is written."""
    platforms = sorted(item.id for item in catalogue.platforms)
    if platform and platform not in platforms:
        hint = did_you_mean(platform, platforms)
        raise UsageError(f"{source} '{platform}' is unknown: {hint}expected one of {', '.join(platforms)}")


def warn_about_instance_type(
    catalogue: Catalogue, instance_type: str, platform: str, source: str = "--instance-type"
) -> None:
    """Print a warning where no platform has the given instance type. source: where it is written."""
    instance_types = {rule.instance_type for item in catalogue.platforms for rule in item.match}
    if instance_type and instance_type not in instance_types and not platform:
        print_error(
            f"{source}: '{instance_type}' is unknown and ignored: check its spelling, or set --platform"
        )


def load_policy(file: str, catalogue: Catalogue) -> Policy:
    """Return the policy of a file, with the errors of nodeguard policy check. Prints its warnings."""
    from nodeguard.aggregator.policy.policy_file import read_policy  # noqa: PLC0415 - brings what only files of YAML need

    checks = {check.id: check.health for check in catalogue.checks}
    policy, warnings = read_policy(Path(file), checks, time.time(), catalogue.fault_classes)
    for warning in warnings:
        print_error(str(warning))
    return policy


def current_user() -> str:
    """Return the name of the user; under sudo, of the user who ran sudo."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
