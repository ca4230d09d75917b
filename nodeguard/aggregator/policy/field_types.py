"""Field types of the policy file: names and patterns, with their syntax."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta

from nodeguard.model.amounts import END
from nodeguard.model.policy import CheckPattern

NodePattern = Annotated[
    str, Meta(pattern=rf"^[a-z0-9*?!\[\].-]+{END}", max_length=253, examples=["gpu-7", "rack-12-*"])
]
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?{END}",
        max_length=317,
        examples=["topology.kubernetes.io/zone", "rack"],
    ),
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Text = Annotated[str, Meta(max_length=500)]
Checks = Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=200)]
# The marks that findings request: model.mark.FINDING_MARKS.
Marks = Annotated[tuple[Literal["quarantine", "suspect"], ...], Meta(min_length=1, max_length=2)]
Timestamp = Annotated[datetime, Meta(tz=True, examples=["2027-01-31T18:00:00Z", "2027-01-31T18:00:00+01:00"])]
LabelKeys = Annotated[tuple[LabelKey, ...], Meta(min_length=1, max_length=10)]
_STEP = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
DomainPath = Annotated[
    str, Meta(pattern=rf"^{_STEP}(/{_STEP}){{0,9}}{END}", max_length=253, examples=["row-1/r12", "feed-a"])
]
TableFile = Annotated[
    str, Meta(pattern=rf"^[^\x00-\x1f]+{END}", min_length=1, max_length=255, examples=["racks.csv"])
]
