"""Standard streams of a command, and JSON and YAML for them.

An output may be closed, full, of a narrow encoding, or a pipe without a reader. The input may be any bytes.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from nodeguard.model.failure import UserError
from nodeguard.model.printable import escape_unprintable, printable

# The descriptors up to this one are standard input, output and error.
_LAST_STREAM = 2

# The output of a template begins with it.
JSONPATH = "jsonpath="

_color = "auto"


class UnwritableError(UserError):
    """Standard output cannot be written to. Its text is the reason."""


def prepare_streams() -> None:
    """Prepare the streams: what an encoding lacks is written as `?`, and read as U+FFFD."""
    # A file that is opened later must not become a standard stream that was closed.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass
    os.close(opened)
    # Python has None for a closed stream, and print would write errors to standard output instead.
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives until the exit
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def set_color(when: str) -> None:
    """Set when output is in color: `auto`, `always` or `never`."""
    global _color  # noqa: PLW0603 - an option of the process, as the environment variables below
    _color = when


def in_color() -> bool:
    """Return whether output is in color: by --color, else NO_COLOR, FORCE_COLOR, and the terminal."""
    if _color != "auto":
        return _color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") != "0" or os.environ.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return is_terminal() and os.environ.get("TERM") != "dumb"


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return bool(sys.stdout and sys.stdout.isatty())


def print_output(text: str, end: str = "\n") -> None:
    """Write a text to standard output and flush; an empty one is left out.

    Raises UnwritableError and BrokenPipeError.
    """
    if sys.stdout is None:
        raise UnwritableError("standard output is closed: redirect it to a file or to /dev/null")
    try:
        sys.stdout.write(text and text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(
            f"standard output: {error.strerror}: redirect it to where it can be written"
        ) from None


def print_message(text: str) -> None:
    """Write a message to standard output, without control characters. Raises as print_output does."""
    print_output(printable(text))


def print_error(text: str) -> None:
    """Write lines to standard error, where that is possible, without control characters."""
    try:
        print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
    except OSError:
        _replace_with_null(sys.stderr)


def discard_output() -> None:
    """Drop standard output, so that buffered text raises no error when Python exits."""
    _replace_with_null(sys.stdout)


def _replace_with_null(stream: TextIO | None) -> None:
    if stream is None:
        return
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_document(output: str) -> bool:
    """Return whether an output is a document: JSON, YAML, or a template for them."""
    return output in {"json", "yaml"} or output.startswith(JSONPATH)


def as_document(document: Any, output: str) -> str:
    """Return a document as JSON or YAML, or as the text of a template. output: one that is_document accepts.

    The text of a template has no line break at its end, since print_output adds one. Raises TemplateError.
    """
    if output.startswith(JSONPATH):
        from nodeguard.cli.jsonpath import Template  # noqa: PLC0415 - one format of several

        return Template(output.removeprefix(JSONPATH)).fill(_decoded(document)).removesuffix("\n")
    return to_json(document) if output == "json" else to_yaml(document)


def document_or_text(document: Any, output: str, text: Callable[[], str]) -> str:
    """Return a document as as_document does, or the text where the output is none."""
    return as_document(document, output) if is_document(output) else text()


def require_fit(example: Any, output: str) -> None:
    """Raise TemplateError for a template that does not fit documents such as the example.

    For a command that changes something: its result must not be lost after the change.
    """
    document_or_text(example, output, str)


def to_json(document: Any) -> str:
    """Return a document as indented JSON."""
    import msgspec  # noqa: PLC0415 - slow to import, and not needed for text

    text = msgspec.json.format(_encoded(document), indent=2).decode()
    return "\n".join(map(escape_unprintable, text.split("\n")))


def to_yaml(document: Any) -> str:
    """Return a document as YAML, with the fields of its JSON."""
    import yaml  # noqa: PLC0415 - see to_json

    def dump(*, allow_unicode: bool) -> str:
        text = yaml.safe_dump(_decoded(document), sort_keys=False, allow_unicode=allow_unicode, width=120)
        return str(text).rstrip("\n")

    text = dump(allow_unicode=True)
    # YAML calls more characters printable than a terminal, such as those that change the direction of a text.
    return text if all(map(str.isprintable, text.split("\n"))) else dump(allow_unicode=False)


def _decoded(document: Any) -> Any:
    """Return a document as its JSON is decoded."""
    import msgspec  # noqa: PLC0415 - see to_json

    return msgspec.json.decode(_encoded(document))


def _encoded(document: Any) -> bytes:
    """Return a document as JSON. A type that JSON lacks has a method `as_json`."""
    import msgspec  # noqa: PLC0415 - see to_json

    return msgspec.json.encode(document, enc_hook=lambda value: value.as_json())
