"""Label selectors with the grammar of kubectl: `pool=a,rack in (r1, r2),!spare`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

# Characters of a selector.
MAX_SELECTOR = 1024

# The syntax of keys and values in Kubernetes: a name of at most 63 characters, and before a key optionally a
# DNS subdomain of at most 253.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

_TOKEN = re.compile(r"\s*(?P<token>!=|==|[=!(),]|[^\s=!(),]+)")
_END = "the end"


class SelectorError(ValueError):
    """A selector has an error. The message has its place and what is accepted."""


class Requirement(Struct, frozen=True):
    """A condition on one label. values: None for any value. negated: whether no node with one of the values
    fulfils it. A node without the label fulfils a negated one only.
    """

    key: str
    values: frozenset[str] | None = None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil it."""
        value = labels.get(self.key)
        has_value = value is not None and (self.values is None or value in self.values)
        return has_value != self.negated


class LabelSelector(Struct, frozen=True):
    """Conditions that all have to be fulfilled; none for every node."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fulfil all conditions."""
        return all(requirement.matches(labels) for requirement in self.requirements)


EVERY_NODE = LabelSelector()


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector of a text; an empty text selects every node. Raises SelectorError."""
    if len(text) > MAX_SELECTOR:
        raise SelectorError(
            f"a label selector has {MAX_SELECTOR} characters at most: this one has {len(text)}"
        )
    return LabelSelector(tuple(_Parser(text).requirements()) if text.strip() else ())


class _Parser:
    """A parser of one selector, which reads its tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        matches = _TOKEN.finditer(text)
        self._tokens = [(match["token"], match.start("token")) for match in matches] + [("", len(text))]

    def requirements(self) -> Iterator[Requirement]:
        """Yield the conditions. Raises SelectorError."""
        yield self._requirement()
        while self._next:
            self._take(",")
            yield self._requirement()

    @property
    def _next(self) -> str:
        return self._tokens[0][0]

    def _requirement(self) -> Requirement:
        if self._next == "!":
            self._take("!")
            return Requirement(self._key(), negated=True)
        key, operator = self._key(), self._next
        if operator in {"", ","}:
            return Requirement(key)
        if operator in {"=", "==", "!="}:
            self._take(operator)
            return Requirement(key, frozenset({self._value()}), operator == "!=")
        if operator in {"in", "notin"}:
            self._take(operator)
            return Requirement(key, frozenset(self._values()), operator == "notin")
        raise self._error("=, !=, in, notin or a comma")

    def _values(self) -> Iterator[str]:
        self._take("(")
        yield self._value()
        while self._next == ",":
            self._take(",")
            yield self._value()
        self._take(")")

    def _key(self) -> str:
        prefix, slash, name = self._next.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
            raise self._error("the key of a label, such as pool or topology.kubernetes.io/zone")
        return self._take(self._next)

    def _value(self) -> str:
        """Return a value, which may be empty."""
        if self._next in {"", ",", ")"}:
            return ""
        if not _NAME.fullmatch(self._next):
            raise self._error("a value of at most 63 letters, digits, '-', '_' and '.'")
        return self._take(self._next)

    def _take(self, token: str) -> str:
        """Return the next token, which has to be this one. Raises SelectorError."""
        if self._next != token:
            raise self._error(f"'{token}'")
        return self._tokens.pop(0)[0]

    def _error(self, expected: str) -> SelectorError:
        token, position = self._tokens[0]
        actual = f"'{token}'" if token else _END
        return SelectorError(
            f"label selector '{self._text}': character {position + 1}: expected {expected}, found {actual}"
        )
