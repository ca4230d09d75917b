"""The latest values of the agent on this machine: a table of GPUs and one of ports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from nodeguard.agent.control import AgentValues, SourceValues
from nodeguard.cli.render.resources import NONE, table_lines
from nodeguard.cli.render.terminal import StyledLine, StyledText
from nodeguard.judge.formatting import format_duration, format_value
from nodeguard.model.instant import rfc3339
from nodeguard.model.signal import Scalar, Signal
from nodeguard.model.target import target_kind, target_order

# Headers of the columns that name a target, as in `nodeguard get`.
_NAMES = {"gpu": ("GPU", "ADDRESS"), "port": ("PORT",)}

# Columns of each kind of target: header, signal, and a unit that the signal's description has.
_COLUMNS = {
    "gpu": (
        ("TEMPERATURE", "gpu.temperature", ""),
        ("MEMORY", "gpu.memory.temperature", ""),
        ("USE", "gpu.utilization", ""),
        ("CLOCK", "gpu.clocks.sm", " MHz"),
        ("POWER LIMIT", "gpu.power.limit", ""),
        ("PCIE LANES", "gpu.pcie.width", ""),
        ("NVLINKS", "gpu.nvlink.active", ""),
        ("ECC CORRECTED", "gpu.ecc.corrected", ""),
        ("ECC UNCORRECTED", "gpu.ecc.uncorrected", ""),
    ),
    "port": (
        ("STATE", "port.state", ""),
        ("PHYSICAL", "port.phys_state", ""),
        ("RATE", "port.rate", " Gb/s"),
        ("TRANSCEIVER", "port.module.temperature", ""),
        ("LINK DOWNED", "port.link_downed", ""),
        ("SYMBOL ERRORS", "port.symbol_error", ""),
        ("RECEIVE ERRORS", "port.port_rcv_errors", ""),
    ),
}


class AgentValuesOutput(Struct, frozen=True):
    """Output of nodeguard status --agent --values -o json. at: RFC 3339. sources: see SourceValues. indices:
    of GPUs in nvidia-smi, by target.
    """

    version: Literal[1]
    node: str
    at: str
    sources: tuple[SourceValues, ...]
    indices: dict[str, int]


def agent_values_output(values: AgentValues) -> AgentValuesOutput:
    """Return the document of -o json and -o yaml."""
    return AgentValuesOutput(1, values.node, rfc3339(values.at), values.sources, values.indices)


def agent_values_lines(
    values: AgentValues, signals: Mapping[str, Signal], width: int | None
) -> list[StyledLine]:
    """Return the tables, and how old the values are. Stale values are left out. width: of the terminal."""
    merged: dict[str, dict[str, Scalar]] = {}
    for source in values.sources:
        if not source.is_stale:
            for target, read in source.targets.items():
                merged.setdefault(target, {}).update(read)
    lines: list[StyledLine] = []
    for kind, columns in _COLUMNS.items():
        targets = sorted((target for target in merged if target_kind(target) == kind), key=target_order)
        rows = [
            [*_names(target, values.indices), *_cells(merged[target], columns, signals)] for target in targets
        ]
        if rows:
            headers = [*_NAMES[kind], *(header for header, _, _ in columns)]
            lines += [*table_lines(headers, rows, width), StyledLine()]
    lines = lines or [StyledLine(text="no value of a GPU or a port"), StyledLine()]
    return [*lines, *map(_age_line, values.sources)]


def _names(target: str, indices: Mapping[str, int]) -> Iterator[StyledText]:
    """Yield the cells of _NAMES for a target."""
    if target_kind(target) == "gpu":
        yield StyledText(str(indices[target])) if target in indices else NONE
    yield StyledText(target.partition("/")[2])


def _cells(
    read: Mapping[str, Scalar], columns: Sequence[tuple[str, str, str]], signals: Mapping[str, Signal]
) -> Iterator[StyledText]:
    for _, name, unit in columns:
        value = read.get(name)
        yield NONE if value is None else StyledText(f"{format_value(value, signals[name].unit)}{unit}")


def _age_line(source: SourceValues) -> StyledLine:
    age = format_duration(max(0.0, source.age))
    if source.is_stale:
        return StyledLine(text=f"{source.source}: stale, read {age} ago: not shown", style="warning")
    return StyledLine(text=f"{source.source}: read {age} ago", style="dim")
