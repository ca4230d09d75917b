"""Schema of the list of budgets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.status import BudgetView


class BudgetList(Struct, frozen=True):
    """All budgets of marks: first the budgets of the fleet, then the others by use, the highest first."""

    version: Literal[1]
    at: str
    budgets: tuple[BudgetView, ...]
    """The budgets."""
