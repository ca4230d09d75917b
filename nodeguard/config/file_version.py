"""The version of a file that a site writes: policies, checks and notifications.

A file without `version` is read as version 1. A field that is added does not change the version, since an
unknown field is an error; a version changes where an old file would get another meaning.
"""

from __future__ import annotations

from typing import Literal

from nodeguard.config.error_messages import value_text
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import YamlDocument

# The type of the field in a schema. nodeguard reads this version only.
FileVersion = Literal[1]


def require_version(document: YamlDocument) -> None:
    """Refuse a file of a version that this nodeguard does not read. Raises ConfigError.

    The error has no path: fields of another version are not judged by this one.
    """
    if not isinstance(document.data, dict) or "version" not in document.data:
        return
    version = document.data["version"]
    if type(version) is int and version == 1:
        return
    problem, remedy = f"{value_text(version)} is no version: 1 is accepted", "write `version: 1`"
    if type(version) is int and version > 1:
        problem = f"{version} is newer than this nodeguard, which accepts version 1"
        remedy = "upgrade nodeguard, or write the file for version 1"
    raise ConfigError(document.file, document.line(("version",)), "version", problem, remedy)
