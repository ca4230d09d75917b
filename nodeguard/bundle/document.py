"""The YAML files of a bundle: parsed as configuration is, with errors of the bundle."""

from __future__ import annotations

import re
from typing import Any

from nodeguard.bundle.defect import BundleError

_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def mapping(data: bytes, file: str) -> dict[str, Any]:
    """Return the mapping of a YAML file of a bundle, with keys as text. Raises BundleError with the line.

    Values are text, int, float, bool, None, list or dict; see config.yaml_document for the rules.
    """
    from nodeguard.config.errors import ConfigError  # noqa: PLC0415 - only a bundle's reader needs the parser
    from nodeguard.config.yaml_document import parse_yaml  # noqa: PLC0415

    try:
        document = parse_yaml(data, file)
    except ConfigError as error:
        line = f"line {error.line}" if error.line else ""
        field = f"{error.field}: " if error.field else ""
        raise BundleError(file, line, f"{field}{error.problem}", error.remedy) from error
    if not isinstance(document.data, dict):
        raise BundleError(file, "", "is no mapping", "write `name: value` lines, or {} for an empty file")
    return {str(key): value for key, value in document.data.items()}


def quoted(text: str) -> str:
    """Return text as a YAML scalar in double quotes, on one line. Surrogates become `?`."""
    from msgspec import json  # noqa: PLC0415 - only a bundle's writer needs it

    scalar = json.encode(text.encode(errors="replace").decode()).decode()
    return _UNPRINTABLE.sub(lambda letter: f"\\u{ord(letter[0]):04x}", scalar)
