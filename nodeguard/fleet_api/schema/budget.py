"""Schema of the list of budgets."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.status import BudgetView


class BudgetList(Struct, frozen=True):
    """All budgets that marks are charged to, the fleet's first, then the fullest first."""

    version: Literal[1]
    at: str
    budgets: tuple[BudgetView, ...]
