"""Rows of a file, which have the constraints of the file, as the structs of the model."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

Model = TypeVar("Model", bound=Struct)


def as_model(form: type[Model], row: Struct, **changed: Any) -> Model:
    """Return a row as a struct of the model, with the fields that both have. changed: other values."""
    shared = [name for name in form.__struct_fields__ if name not in changed and hasattr(row, name)]
    return form(**{name: getattr(row, name) for name in shared}, **changed)
