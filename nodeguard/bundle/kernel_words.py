"""Words of the kernel log that an anonymised recording keeps: those of known message formats, and no other.

A user chooses the names of processes, paths, volumes, units, hosts and jobs, and the kernel prints them
anywhere. So a word stays only if a known format has it, apart from its digits, or if it has the shape of a
number, of an address or of a kernel device. In a position where the kernel prints a name, the name is
replaced even if a format has the same word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# A word, with its digits and underscores. An escape of /dev/kmsg such as \x0a is none.
_WORD = re.compile(r"\\x[0-9a-f]{2}|\w*[^\W\d_]\w*")
_DIGITS = re.compile(r"\d+")

# Numbers, also with a unit, and hexadecimal numbers with a digit; interfaces, disks and other devices of the
# kernel; functions of the NVIDIA driver, which end with the chip or with IMPL.
_SHAPE = re.compile(
    r"0?x?(?=[a-fA-F_]*\d)[0-9a-fA-F_]+|\d+(?:k?B|[kKMGT]i?B?|[mun]?s|ms|msec|sec|us|min|W|mW|C|V|mV|GT|th|st|nd|rd)"
    r"|nvme\d+(?:c\d+)?(?:n\d+)?(?:p\d+)?|(?:sd|vd|xvd)[a-z]{1,2}\d*|(?:md|dm|loop|sr|nbd)_?\d+"
    r"|(?:mlx[45]|bnxt_re|irdma|efa|rxe|siw)_\d+|rdmap\d+s\d+(?:f\d+)?|(?:GPU|CPU|cpu|MC|PE|LWP|TID|core)\d+"
    r"|(?:eth|bond|br|vlan)\d+|en(?:[ops]\d|P\d+[ops]\d)\w*|ib(?:[ps]\d|P\d+[ops]\d)?\w*\d|nvidia\w{0,12}\d*"
    r"|_?[a-z]{1,12}[A-Z][A-Za-z0-9]{2,60}_(?:IMPL|KERNEL|VF|FWCLIENT|[A-Z]{2}\d{2}[0-9A-Z])"
)
# Processes of the kernel itself. A user can take these names too, but they then identify no user.
_KERNEL_THREAD = re.compile(
    r"<\w+>|(?:swapper|kworker|ksoftirqd|migration|cpuhp|irq|kcompactd|kswapd|khugepaged|rcu_\w+|watchdog)[/\d]?\S*"
)
# Positions of the name of a process. Linux: mm/oom_kill.c, kernel/hung_task.c, kernel/sched/core.c,
# lib/dump_stack.c, mm/page_alloc.c and arch/x86/mm/fault.c; TASK_COMM_LEN is 16 with its end. A name may have
# spaces.
_PROCESSES = re.compile(
    r"(?P<head>\b(?:Kill(?:ed)?|reaped) process \d+ \(|\btask[=:]|\btask (?=.{1,15}:\d+ blocked)"
    r"|\b[Cc]omm[:= ]\s?\"?|\bname[=:] ?'?|\b[Pp]rocess \"?(?!\d)|\b(?:by|from|atomic:) (?=.{1,15}/\d)"
    r"|\bclient '?|! \[(?=.{1,15}:\d+\]))"
    r"(?P<name>.{1,15}?)"
    r"(?='? \(pid|'?[,)\"\n]|: |:\d+(?: blocked|\])|\s+state:|  | (?:Not tainted|Tainted|Kdump|PID)\b"
    r"|\\x|\[\d+\]|/\d|'|$)"
    r"|^(?P<first>.{1,15}?)"
    r"(?=\[\d+\]:? |: page allocation (?:failure|stalls)| invoked oom-killer|/\d+ is using|\(\d+\): )"
)
# Numbers that identify a user, a group, a session or a job.
_OWNERS = re.compile(
    r"(\b(?:[a-z]*[ug]id|user|session|job|slurm|step)(?:[=:_-]| (?=\d)) ?)(\d+)", re.IGNORECASE
)
# Names of targets in storage networks (RFC 3720, NVM Express 4.5).
_QUALIFIED = re.compile(r"(?<=\b[in]qn\.)[\w.:-]+|(?<=\beui\.)\w+|(?<=\bnaa\.)\w+")
# A file or directory, not the address of a function or a rate: a slash at the beginning of a word.
_PATH = re.compile(r"(?<![\w./)\]])/(?:[^\s/:,;'\"()\\]+/?)+")
# Names that the mount table has too, word by word: the file system of a target of Lustre, and a node of LNet.
_MOUNTED = re.compile(
    r"(?<![\w.])[A-Za-z]\w{0,7}(?=-(?:OST|MDT|MGT)[0-9a-f]{4})|\b[A-Za-z][\w.-]*(?=@(?:o2ib|tcp|kfi|gni)\d*\b)"
)
_SERVER = re.compile(r"(?<=\bserver )(?=\D)[\w.-]+(?=[ ,:])")
# Addresses of PCI functions, and times: numbers with colons that are left after the identities are replaced.
_ADDRESS = re.compile(r"\b(?=[a-fA-F:]*\d)[0-9a-fA-F]{1,8}(?::[0-9a-fA-F]{2,8})+(?:\.[0-7])?\b")
# The device of a record, which the kernel names after the text.
_DEVICE = re.compile(r"^ (?:SUBSYSTEM|DEVICE)=\S*$", re.MULTILINE)
# The kernel reads the labels of memory modules from the board.
_MODULE_LABEL = re.compile(
    r"(?<=\bon )[\w#. -]{1,120}?(?= \((?:channel|slot|branch|csrow|page|row|node|rank)\b)"
)
# Surround what is replaced already, or stays: private characters of Unicode, which the kernel does not print.
_OPEN, _CLOSE = "\ue000", "\ue001"
_DONE = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


def known_words(lines: Iterable[str]) -> frozenset[str]:
    """Return the words of example lines of known formats, without the names of processes in them."""
    unnamed = (_QUALIFIED.sub("", _PROCESSES.sub(lambda match: match["head"] or "", line)) for line in lines)
    return frozenset(_form(word) for line in unnamed for word in _WORD.findall(line))


def mark(replaced: str) -> str:
    """Return a text that `anonymous_words` takes as it is."""
    return f"{_OPEN}{replaced}{_CLOSE}" if replaced else ""


def mark_names(
    text: str, word: Callable[[str], str], number: Callable[[str], str], path: Callable[[str], str]
) -> str:
    """Return the text of a line with names in known positions replaced, and marked.

    word, number, path: return the replacement of a name, of the number of an owner, and of a path.
    """

    def process(match: re.Match[str]) -> str:
        head, name = match["head"] or "", match["name"] or match["first"]
        return head + mark(name if _KERNEL_THREAD.fullmatch(name) else word(name))

    for pattern, replace in (
        (_DEVICE, lambda match: mark(match[0])),
        (_MODULE_LABEL, lambda match: mark(match[0])),
        (_PROCESSES, process),
        (_QUALIFIED, lambda match: mark(word(match[0]))),
        (_PATH, lambda match: mark(path(match[0]))),
        (_MOUNTED, lambda match: mark(path(match[0]))),
        (_SERVER, lambda match: mark(word(match[0]))),
        (_OWNERS, lambda match: match[1] + mark(number(match[2]))),
        (_ADDRESS, lambda match: mark(match[0])),
    ):
        text = sub_unmarked(pattern, replace, text)
    return text


def anonymous_words(text: str, vocabulary: frozenset[str], word: Callable[[str], str]) -> str:
    """Return the text of a line without marks, every word replaced that is neither known nor marked."""

    def replaced(match: re.Match[str]) -> str:
        matched = match[0]
        is_kept = matched.startswith("\\") or _form(matched) in vocabulary or _SHAPE.fullmatch(matched)
        return matched if is_kept else word(matched)

    return "".join(
        part if index % 2 else _WORD.sub(replaced, part) for index, part in enumerate(_DONE.split(text))
    )


def without_marks(text: str) -> str:
    """Return a text without the characters that mark a replacement."""
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def sub_unmarked(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    """Replace the matches of a pattern in the parts of a text that are not marked."""
    return "".join(
        mark(part) if index % 2 else pattern.sub(replace, part)
        for index, part in enumerate(_DONE.split(text))
    )


def _form(word: str) -> str:
    """Return a word with every number alike: a format has mlx5_3 if it has mlx5_0."""
    return _DIGITS.sub("0", word)
