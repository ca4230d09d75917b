"""Format strings in C: what the NVIDIA driver prints as errors, and Linux as warnings or worse."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Calls that print, and the level at which a release build prints them to the kernel log.
_CALL = re.compile(
    r"\b(NV_PRINTF(?:_EX|_COND)?|nv_printf|NV_DEV_PRINTF(?:_STATUS)?|portDbgPrintf|printk|pr_err)\s*\("
)
_LEVEL = re.compile(r"\s*(?:\w+\s*,\s*)?(?:[^,]*,\s*)?(LEVEL_\w+|NV_DBG_\w+|KERN_\w+)")
_PRINTED = frozenset({"LEVEL_ERROR", "LEVEL_FATAL", "NV_DBG_ERRORS", "KERN_ERR"})
_WITHOUT_LEVEL = frozenset({"portDbgPrintf", "pr_err"})
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
# The strings of a format follow each other, with macros such as PRIu64 between them.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*(?:[A-Za-z_]\w*\s*)?"(?:[^"\\]|\\.)*")*')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# A conversion of printf; the kernel's own begin with %p and have letters after it, such as %pISpc.
CONVERSION = re.compile(
    r"%[-+0 #]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:p[a-zA-Z0-9]*|(?:ll|l|hh|h|z|t|j)?[a-zA-Z%]?)"
)
# An Xid is read with its own tables.
_XID = "NVRM: Xid ("

# Words of a failure: an ignored format with one of them needs a reason of its own.
FAILURE = re.compile(r"fail|fatal|error|timeout|halt|reset|lost", re.IGNORECASE)

# Functions of Linux that print a warning or worse, by a part of their name, and functions of like names that
# print nothing, print less, or write into a buffer.
_KERNEL_CALL = re.compile(r"(?P<name>\w+)\s*\(")
_KERNEL_PRINTS = re.compile(r"err|warn|crit|alert|emerg|fatal|printk|_msg|panic|bug$", re.IGNORECASE)
_KERNEL_SILENT = re.compile(
    r"dbg|debug|trace|_info|notice|snprintf|scnprintf|seq_|sprintf|WARN_ON|BUILD_BUG|NL_SET|devlink|strerr|extack|BUG_ON"
    r"|perror|kasprintf",
    re.IGNORECASE,
)
_KERNEL_LOW_LEVEL = re.compile(r'\s*(?:\w[^,"]*,\s*)*KERN_(?:INFO|NOTICE|DEBUG|CONT)')
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b.*$", re.MULTILINE)


def formats_of_code(code: str) -> Iterator[str]:
    """Yield the formats that a file in C prints at the level of errors, without those of Xids."""
    for call in _CALL.finditer(code):
        arguments = _COMMENT.sub("", _arguments(code, call.end()))
        level = _LEVEL.match(arguments)
        strings = _STRINGS.search(arguments)
        if strings and (level[1] in _PRINTED if level else call[1] in _WITHOUT_LEVEL):
            text = _text(strings[0])
            if CONVERSION.sub("", text).strip() and not text.startswith(_XID):
                yield text


def _arguments(code: str, start: int) -> str:
    """Return the arguments of a call that begin at a position of the code."""
    depth, at, in_string = 1, start, False
    while depth and at < len(code):
        character = code[at]
        if in_string and character == "\\":
            at += 1
        elif character == '"':
            in_string = not in_string
        elif not in_string:
            depth += {"(": 1, ")": -1}.get(character, 0)
        at += 1
    return code[start : at - 1]


def failures_of_kernel_code(code: str) -> Iterator[str]:
    """Yield the formats with a word of a failure that a file of Linux prints as a warning or worse."""
    code = _COMMENT.sub("", code)
    definitions = [match.span() for match in _MACRO.finditer(code)]
    for call in _KERNEL_CALL.finditer(code):
        name = call["name"]
        if not _KERNEL_PRINTS.search(name) or _KERNEL_SILENT.search(name):
            continue
        if any(start <= call.start() < end for start, end in definitions):
            continue
        arguments = _arguments(code, call.end())
        strings = _STRINGS.search(arguments)
        if strings and not _KERNEL_LOW_LEVEL.match(arguments):
            text = _text(strings[0])
            if FAILURE.search(text) and " " in text:
                yield text


def _text(strings: str) -> str:
    """Return the text of strings in C that follow each other."""
    joined = "".join(_STRING.findall(strings))
    return joined.encode().decode("unicode_escape", "replace").strip("\n").rstrip()
