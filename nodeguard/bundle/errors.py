"""errors.yaml: paths that cannot be read, each with the name of its failure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.document import mapping, quoted
from nodeguard.bundle.failures import is_system_failure
from nodeguard.bundle.manifest import machine_path


def read_errors(data: bytes, file: str, *, base: bool) -> dict[str, str | None]:
    """Return the content of errors.yaml: an errno name, `stall` or `hang` by absolute path.

    None removes an entry; only a frame may do that. Raises BundleError.
    """
    errors: dict[str, str | None] = {}
    for path, failure in mapping(data, file).items():
        at = machine_path(path, file, path)
        if at in errors:
            raise BundleError(file, path, "is there twice", "keep one")
        if not (is_system_failure(failure) or (failure is None and not base)):
            raise BundleError(
                file, path, f"{failure!r} is not a known failure", "write an errno name, stall or hang"
            )
        errors[at] = failure
    return errors


def write_errors(errors: Mapping[str, str | None]) -> str:
    """Return the text of errors.yaml."""
    return "".join(f"{quoted(path.lstrip('/'))}: {failure or 'null'}\n" for path, failure in errors.items())
