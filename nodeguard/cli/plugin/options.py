"""The options of the plug-in itself. kubectl passes on only those after the name of the plug-in. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodeguard.cli.usage import UsageError

NAMESPACE = "nodeguard"

_NAMES = ("namespace", "context", "kubeconfig")
_USER, _GROUP = "as", "as-group"
_NODE = "on"
# Options with another name of their field.
_FIELDS = {_USER: "user", _NODE: "node"}


class ClusterOptions(Struct, frozen=True):
    """The cluster. namespace: of nodeguard. context, kubeconfig: as of kubectl; empty for its defaults.

    user, groups: to impersonate, `--as` and `--as-group` of kubectl; empty for the caller. node: of the agent
    that is asked, `--on`; empty for none.
    """

    namespace: str = NAMESPACE
    context: str = ""
    kubeconfig: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    node: str = ""

    def kubectl_options(self) -> Iterator[str]:
        """Yield the options for kubectl."""
        for name in _NAMES:
            if value := getattr(self, name):
                yield f"--{name}={value}"
        if self.user:
            yield f"--{_USER}={self.user}"
        for group in self.groups:
            yield f"--{_GROUP}={group}"

    @property
    def program(self) -> str:
        """The plug-in with the options of its caller, as a shell reads it."""
        default = f"--namespace={NAMESPACE}"
        return shlex.join(
            ["kubectl", "nodeguard", *(word for word in self.kubectl_options() if word != default)]
        )

    def impersonation(self) -> list[tuple[str, str]]:
        """Return the headers of a request for the user and groups to impersonate."""
        user = [("Impersonate-User", self.user)] if self.user else []
        return [*user, *(("Impersonate-Group", group) for group in self.groups)]


def split_options(words: Sequence[str]) -> tuple[ClusterOptions, list[str]]:
    """Return the options of the plug-in, and the command. Raises UsageError for an option without a value,
    and for groups without a user.

    They may be anywhere, as those of kubectl; `-n` only before the command, where some commands have one.
    """
    values: dict[str, str] = {}
    groups: list[str] = []
    command: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            command += [word, *rest]
            break
        option, equals, value = word.partition("=")
        name = "namespace" if option == "-n" and not command else option.removeprefix("--")
        if name not in {*_NAMES, *_FIELDS, _GROUP} or not option.startswith("-"):
            command.append(word)
            continue
        value = value if equals else next(rest, "")
        if not value:
            raise UsageError(f"{option} has no value: write {option} NAME")
        if name == _GROUP:
            groups.append(value)
        else:
            values[_FIELDS.get(name, name)] = value
    if groups and "user" not in values:
        raise UsageError("--as-group needs a user: add --as NAME")
    return ClusterOptions(**values, groups=tuple(groups)), command


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command with more options: before `--`, where its arguments begin."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]
