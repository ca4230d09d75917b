"""Descriptions of properties in JSON Schemas: the docstrings below the fields of structs.

They are read from the source code: Python keeps none.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

from msgspec import Struct


def with_field_descriptions(components: dict[str, Any]) -> dict[str, Any]:
    """Return schemas by the name of their struct, with the docstring of each field as its description."""
    structs = {struct.__name__: struct for struct in _subclasses(Struct)}
    return {
        name: _described(schema, structs[name]) if name in structs and "properties" in schema else schema
        for name, schema in components.items()
    }


def _subclasses(struct: type[Struct]) -> Iterator[type[Struct]]:
    for subclass in struct.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _described(schema: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    keys = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
    texts = {
        keys[field]: text
        for part in reversed(struct.__mro__)
        if issubclass(part, Struct) and part is not Struct
        for field, text in _docstrings(part)
    }
    properties = dict(schema["properties"])
    for key, text in texts.items():
        # A type has a rule of its values, such as which letters a name has.
        rule = properties[key].get("description")
        description = f"{text.rstrip('.')}: {rule}." if rule else text
        properties[key] = {"description": "", **properties[key]} | {"description": description}
    return {**schema, "properties": properties}


def _docstrings(struct: type[Struct]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a struct defines itself and that have a docstring, with the docstring."""
    [definition] = ast.parse(dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    before: ast.stmt | None = None
    for statement in definition.body:
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            yield before.target.id, statement.value.value
        before = statement
