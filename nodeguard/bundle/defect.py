"""What a bundle that breaks its format is refused with."""

from __future__ import annotations


def _shown(text: str) -> str:
    """Text that fits into one line: as it is where it can be printed, else with escapes."""
    return text if text.isprintable() else ascii(text)[1:-1]


class BundleError(Exception):
    """A bundle that cannot be read, or not be written. Its str is one line: `file: field: problem: remedy`.

    file: path of the file or directory, as the user named the bundle. field: the field or line in it; empty
    where the whole file is meant. problem: what is wrong. remedy: what to do.
    """

    def __init__(self, file: str, field: str, problem: str, remedy: str) -> None:
        super().__init__(": ".join(_shown(part) for part in (file, field, problem, remedy) if part))
        self.file = file
        self.field = field
        self.problem = problem
        self.remedy = remedy
