"""The options of the plug-in itself. kubectl passes on only those after the name of the plug-in. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodeguard.cli.usage import UsageError

NAMESPACE = "nodeguard"

_NAMES = ("namespace", "context", "kubeconfig")


class ClusterOptions(Struct, frozen=True):
    """The cluster. namespace: of nodeguard. context, kubeconfig: as of kubectl; empty for its defaults."""

    namespace: str = NAMESPACE
    context: str = ""
    kubeconfig: str = ""

    def kubectl_options(self) -> Iterator[str]:
        """Yield the options for kubectl."""
        for name in _NAMES:
            if value := getattr(self, name):
                yield f"--{name}={value}"


def split_options(words: Sequence[str]) -> tuple[ClusterOptions, list[str]]:
    """Return the options of the plug-in, and the command. Raises UsageError for an option without a value.

    They may be anywhere, as those of kubectl; `-n` only before the command, where some commands have one.
    """
    values: dict[str, str] = {}
    command: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return ClusterOptions(**values), [*command, word, *rest]
        option, equals, value = word.partition("=")
        name = "namespace" if option == "-n" and not command else option.removeprefix("--")
        if name not in _NAMES or not option.startswith("-"):
            command.append(word)
            continue
        value = value if equals else next(rest, "")
        if not value:
            raise UsageError(f"{option} has no value: write {option} NAME")
        values[name] = value
    return ClusterOptions(**values), command


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command with more options: before `--`, where its arguments begin."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *options, *words[end:]]
