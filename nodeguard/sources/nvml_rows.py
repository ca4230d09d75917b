"""Rows of the NVML table: types of values and the notation of calls."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection
from math import isfinite
from typing import Any

from msgspec import Struct

from nodeguard.model.signal import Scalar, Signal, SignalKind
from nodeguard.sources import max_rates
from nodeguard.sources.pcie import LANES
from nodeguard.sources.readings import ALL_ONES


class Row(Struct, frozen=True):
    """One signal and its source.

    calls: in the order in which they are tried, each with the item of its result. convert: returns the value
    of the signal, None if it does not apply; raises ValueError, TypeError or OverflowError for an implausible
    one.
    """

    signal: Signal
    calls: tuple[tuple[str, int | str | None], ...]
    convert: Callable[[Any], Scalar | None]


class ValueType(Struct, frozen=True):
    """A type of value: kind, unit and highest rate of the signal, and the conversion of a result."""

    kind: SignalKind
    convert: Callable[[Any], Scalar | None]
    unit: str = ""
    max_rate: float = 0.0


def _text(value: Any) -> str:
    if not str.isprintable(value):
        raise ValueError(value)
    return str(value)[:200]


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(value)
    if value in _NOT_AVAILABLE:
        raise ValueError(value)
    return value


def _count(value: Any) -> int:
    if _whole(value) < 0:
        raise ValueError(value)
    return int(value)


def _counted(value: Any) -> int:
    if _count(value) in ALL_ONES:
        raise ValueError(value)
    return int(value)


# Degrees Celsius. GPUs and their memory turn themselves off below 120.
_HOTTEST = 200.0

# Degrees Celsius. GPUs and their memory that report a limit have none below 80.
_LOWEST_LIMIT = 70.0

# Degrees between the limits of operation, slow-down and shutdown: nvidia-smi shows less than ten.
_FARTHEST_LIMIT = 50.0

# Bytes. No GPU with NVML has less memory.
_SMALLEST_MEMORY = 128 << 20

# Megabytes a second of one lane of the slowest NVLink. A link has several lanes. Source: NVIDIA Tesla P100
# whitepaper, NVLink 1 with 20 Gb/s a lane and eight lanes a link.
_SLOWEST_NVLINK_LANE = 2500

# Milliwatts. No GPU works with less; laptops may go down to it.
_SMALLEST_POWER_LIMIT = 1000

# All ones in 32 or 64 bits: NVML_VALUE_NOT_AVAILABLE (nvml.h), or a read from a device that does not answer.
_NOT_AVAILABLE = frozenset({(1 << 32) - 1, (1 << 64) - 1})


def _scaled(by: float) -> Callable[[Any], float]:
    def convert(value: Any) -> float:
        if type(value) not in {int, float}:
            raise TypeError(value)
        if value in _NOT_AVAILABLE:
            raise ValueError(value)
        scaled = float(value * by)
        if not isfinite(scaled):
            raise ValueError(value)
        return scaled

    return convert


def _degrees(lowest: float, highest: float = _HOTTEST) -> Callable[[Any], float]:
    """Return the conversion of degrees Celsius from `lowest` to `highest`, by default that of a board."""

    def convert(value: Any) -> float:
        if not lowest <= (degrees := _scaled(1)(value)) <= highest:
            raise ValueError(value)
        return degrees

    return convert


def _length(value: Any) -> int:
    if type(value) is not list:
        raise TypeError(value)
    return len(value)


def counter(max_rate: float, most: int = 0) -> ValueType:
    """Return the type of a counter. max_rate: see Signal. most: its highest possible value, 0 for any."""

    def convert(value: Any) -> int:
        if most and _counted(value) > most:
            raise ValueError(value)
        return _counted(value)

    return ValueType("counter", convert, max_rate=max_rate)


def _uuid(value: Any) -> str:
    """Return 16 bytes as a UUID."""
    if type(value) is not list or any(type(byte) is not int for byte in value):
        raise TypeError(value)
    return str(uuid.UUID(bytes=bytes(value)))


def _one_of(values: Collection[int]) -> Callable[[Any], int]:
    """Return the conversion of a number that has no other values."""

    def convert(value: Any) -> int:
        if _whole(value) not in values:
            raise ValueError(value)
        return int(value)

    return convert


def _memory_size(value: Any) -> int:
    if _counted(value) < _SMALLEST_MEMORY:
        raise ValueError(value)
    return int(value)


def _power_limit(value: Any) -> float:
    """Return a limit in watts."""
    if _counted(value) < _SMALLEST_POWER_LIMIT:
        raise ValueError(value)
    return _scaled(1e-3)(value)


def _nvlink_rate(value: Any) -> int | None:
    """Return a rate; None for 0: a link that is not trained has none."""
    if 0 < _counted(value) < _SLOWEST_NVLINK_LANE:
        raise ValueError(value)
    return int(value) or None


def _reasons(value: Any) -> int:
    """Return the mask of the reasons for low clocks, of which nvml.h has nine.

    A GPU is never idle and slowed for each of the next five reasons at once: such a mask is all ones.
    """
    if _counted(value) >> 16 or value & 0x3F == 0x3F:
        raise ValueError(value)
    return int(value)


def reason(mask: int) -> ValueType:
    """Return the type of a value that is true if a bit of the mask is set in the reasons for low clocks."""
    return ValueType("state", lambda value: bool(_reasons(value) & mask))


TEXT = ValueType("state", _text)
UUID = ValueType("state", _uuid)
NUMBER = ValueType("state", _whole)
IDENTIFIER = ValueType("state", _counted)
BOOLEAN = ValueType("state", lambda value: bool(_one_of((0, 1))(value)))
# Of enumerations that NVIDIA extends: nvml.h has fewer than ten values of each.
ENUMERATION = ValueType("state", _one_of(range(32)))
RETURN_CODE = ValueType("state", _one_of({*range(60), 999}))
CLOCK_REASONS = ValueType("state", _reasons)
# Of PCI Express 1 to 7; NVML has none above 6 yet.
PCIE_GENERATION = ValueType("state", _one_of(range(1, 9)))
CURRENT_PCIE_GENERATION = ValueType("gauge", _one_of(range(1, 9)))
PCIE_LANES = ValueType("state", _one_of(LANES))
LENGTH = ValueType("state", _length)
GAUGE = ValueType("gauge", _count)
MEMORY_SIZE = ValueType("state", _memory_size, "bytes")
NVLINK_RATE = ValueType("state", _nvlink_rate)
CELSIUS = ValueType("gauge", _degrees(-_HOTTEST), "celsius")
CELSIUS_DISTANCE = ValueType("state", _degrees(-_FARTHEST_LIMIT, _FARTHEST_LIMIT), "celsius")
CELSIUS_LIMIT = ValueType("state", _degrees(_LOWEST_LIMIT), "celsius")
POWER_LIMIT = ValueType("gauge", _power_limit, "watts")
PERCENT = ValueType("gauge", _scaled(1e-2), "ratio")
NANOSECONDS = ValueType("counter", _scaled(1e-9), "seconds", max_rates.SECONDS)

_CALL = re.compile(r"(\w+(?:\([^)]*\))?)(?:\[(\d+)\]|\.(\w+))?")


def make_rows(*rows: tuple[str, ValueType, str, str]) -> tuple[Row, ...]:
    """Return the rows of (signal, type of value, call, description); see nvml_table for the notation."""
    return tuple(
        Row(
            Signal(name, value_type.kind, about, value_type.unit, max_rate=value_type.max_rate),
            tuple(map(_item, calls.split(" | "))),
            value_type.convert,
        )
        for name, value_type, calls, about in rows
    )


def _item(call: str) -> tuple[str, int | str | None]:
    match = _CALL.fullmatch(call)
    if match is None:
        raise ValueError(call)
    return match[1], int(match[2]) if match[2] else match[3]
