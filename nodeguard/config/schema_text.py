"""Descriptions in JSON Schemas, which are docstrings: the same text in all versions of Python."""

from __future__ import annotations

from typing import Any


def with_clean_descriptions(schema: Any) -> Any:
    """Return a schema, or a part of one, in which each paragraph of a docstring is one line.

    Before version 3.13, Python keeps the indentation of a docstring.
    """
    if isinstance(schema, list):
        return [with_clean_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _paragraphs(content)
        if keyword == "description" and isinstance(content, str)
        else with_clean_descriptions(content)
        for keyword, content in schema.items()
    }


def _paragraphs(docstring: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in docstring.strip().split("\n\n"))
