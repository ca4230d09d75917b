"""Prometheus' text format, version 0.0.4, of gauges and counters. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# A label's value cannot break out of its quotes, nor anything out of its line.
_OF_VALUE = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_OF_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})

Sample = tuple[Mapping[str, str], float]


def gauge(name: str, about: str, samples: Iterable[Sample]) -> str:
    """A family of gauges: its lines, each with its newline. Samples differ in their labels' values."""
    return _family(name, about, "gauge", samples)


def counter(name: str, about: str, samples: Iterable[Sample]) -> str:
    """A family of counters since the process began; its name ends with `_total`."""
    return _family(name, about, "counter", samples)


def plain(name: str, about: str, value: float) -> str:
    """A gauge without labels."""
    return gauge(name, about, [({}, value)])


def states(name: str, about: str, label: str, all_states: type[StrEnum], now: str | None) -> str:
    """A gauge for each state, 1 for the one that is; None where none is."""
    return gauge(name, about, [({label: state.value}, state == now) for state in all_states])


def _family(name: str, about: str, kind: str, samples: Iterable[Sample]) -> str:
    head = f"# HELP {name} {about.translate(_OF_HELP)}\n# TYPE {name} {kind}\n"
    return head + "".join(f"{name}{_labels(labels)} {float(value)!r}\n" for labels, value in samples)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_OF_VALUE)}"' for name, value in sorted(labels.items()))
    return f"{{{','.join(pairs)}}}"
