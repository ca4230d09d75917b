"""The query of a page: what a reader asks for, validated. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from nodeguard.fleet_api.fleet_map import SEVERITIES
from nodeguard.fleet_api.schema.capacity import WorkState
from nodeguard.model.incident import IncidentState
from nodeguard.model.mark import Mark

# Characters of a name, as of a Node in Kubernetes, and of what an error repeats.
_NAME = 253
_REPEATED = 40

_PAGE = re.compile("[1-9][0-9]{0,3}")

ANY_MARK = "any"


class QueryError(ValueError):
    """A query that is not valid; the text names the parameter, its value, and what is accepted."""


class NodeQuery(NamedTuple):
    """The nodes to list. name: a part of their names. health, mark, work: any where empty. page: the first
    is 1.
    """

    name: str = ""
    health: str = ""
    mark: str = ""
    page: int = 1
    work: str = ""


class IncidentQuery(NamedTuple):
    """The incidents to list. check, state: any unresolved where empty. page: the first is 1."""

    check: str = ""
    state: str = ""
    page: int = 1


def node_query(query: Mapping[str, str]) -> NodeQuery:
    """Return the query of the list of nodes. Raises QueryError."""
    _accepts(query, ("q", "health", "mark", "work", "page"))
    marks = (ANY_MARK, *(mark.value for mark in Mark))
    health, mark = _choice(query, "health", SEVERITIES), _choice(query, "mark", marks)
    return NodeQuery(_name(query, "q"), health, mark, _page(query), _choice(query, "work", tuple(WorkState)))


def incident_query(query: Mapping[str, str]) -> IncidentQuery:
    """Return the query of the list of incidents. Raises QueryError."""
    _accepts(query, ("check", "state", "page"))
    state = _choice(query, "state", [state.slug for state in IncidentState])
    return IncidentQuery(_name(query, "check"), state, _page(query))


def _accepts(query: Mapping[str, str], names: Collection[str]) -> None:
    for name in query:
        if name not in names:
            raise QueryError(f"'{name[:_REPEATED]}' is not a filter of this page: use {', '.join(names)}")


def _name(query: Mapping[str, str], parameter: str) -> str:
    name = query.get(parameter, "").strip()
    if len(name) > _NAME:
        raise QueryError(f"{parameter} has {len(name)} characters: use at most {_NAME}")
    return name


def _choice(query: Mapping[str, str], parameter: str, choices: Collection[str]) -> str:
    value = query.get(parameter, "")
    if value and value not in choices:
        accepted = ", ".join(choices)
        raise QueryError(f"'{value[:_REPEATED]}' is not valid for {parameter}: use one of {accepted}")
    return value


def _page(query: Mapping[str, str]) -> int:
    value = query.get("page", "1")
    if not _PAGE.fullmatch(value):
        raise QueryError(f"'{value[:_REPEATED]}' is not valid for page: use a number from 1 to 9999")
    return int(value)
