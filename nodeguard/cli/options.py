"""Options that several commands take, and what their values have to be."""

from __future__ import annotations

import os
import pwd
from argparse import ArgumentTypeError

from nodeguard.cli.streams import print_error
from nodeguard.cli.usage import ArgumentParser, UsageError, duration
from nodeguard.model.catalogue import Catalogue


def directory(text: str) -> str:
    """The name of a folder, as it is. Raises ArgumentTypeError for an empty one."""
    if not text.strip():
        raise ArgumentTypeError("an empty name is no folder: write where it is")
    return text


def add_checks(parser: ArgumentParser) -> None:
    """Add --checks."""
    about = "add or override checks from this folder"
    parser.add_argument("--checks", metavar="DIR", type=directory, action="append", default=[], help=about)


def add_only(parser: ArgumentParser) -> None:
    """Add --only, several times or with several families."""
    about = "these families of checks alone"
    parser.add_argument("--only", metavar="FAMILY,…", action="append", default=[], help=about)


def add_machine(parser: ArgumentParser) -> None:
    """Add what a command that reads once needs to know: --platform, --instance-type and --timeout."""
    add_site(parser)
    about = "wait no longer for any source (60s)"
    parser.add_argument("--timeout", metavar="TIME", type=duration, default=60.0, help=about)


def add_site(parser: ArgumentParser) -> None:
    """Add what a machine may not tell: --platform and --instance-type."""
    add = parser.add_argument
    add("--platform", metavar="ID", default="", help="what this machine is, where it cannot be recognised")
    add("--instance-type", metavar="TYPE", default="", help="what the cloud calls this machine")


def validate_platform(catalogue: Catalogue, platform: str, said: str = "platform") -> None:
    """Raises UsageError for a platform that no file tells of. Empty for none. said: where it is written."""
    known = sorted(one.id for one in catalogue.platforms)
    if platform and platform not in known:
        raise UsageError(f"{said} '{platform}' is not known: it is one of {', '.join(known)}")


def warn_about_instance_type(
    catalogue: Catalogue, instance_type: str, platform: str, said: str = "--instance-type"
) -> None:
    """Say so where no platform has the instance type that was given. said: where it is written."""
    known = {way.instance_type for one in catalogue.platforms for way in one.match}
    if instance_type and instance_type not in known and not platform:
        print_error(
            f"{said}: '{instance_type}' is of no platform that is known and says "
            "nothing: see that it is spelt to the letter, or say --platform"
        )


def current_user() -> str:
    """Who is at the prompt, behind sudo as well."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
