"""errors.yaml: paths that cannot be read, and how reading them fails."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.document import mapping, quoted
from nodeguard.bundle.failures import is_system_failure
from nodeguard.bundle.manifest import machine_path


def read_errors(data: bytes, file: str, *, base: bool) -> dict[str, str | None]:
    """Content of errors.yaml: an errno name, `stall` or `hang` by absolute path.

    None takes an entry away; only a frame may say that. Raises BundleError.
    """
    errors: dict[str, str | None] = {}
    for path, word in mapping(data, file).items():
        at = machine_path(path, file, path)
        if at in errors:
            raise BundleError(file, path, "stands twice", "keep one")
        if not (is_system_failure(word) or (word is None and not base)):
            raise BundleError(
                file, path, f"{word!r} is no known failure", "write an errno name, stall or hang"
            )
        errors[at] = word
    return errors


def write_errors(errors: Mapping[str, str | None]) -> str:
    """Text of errors.yaml."""
    return "".join(f"{quoted(path.lstrip('/'))}: {word or 'null'}\n" for path, word in errors.items())
