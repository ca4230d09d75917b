"""Source `filesystem`: mounts, their use, and whether they answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodeguard.model import target as targets
from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.sources.machine import Machine
from nodeguard.sources.mounts import mounts_to_check, parse_mounts
from nodeguard.sources.readings import (
    DENIED,
    ObservationDraft,
    failure_reason,
    implausible,
    parse_count,
    read_text,
)
from nodeguard.sources.source import source
from nodeguard.worker.call_log import error_name as error_of
from nodeguard.worker.result import LaneResult

_MOUNTS = "/proc/self/mounts"
_FSTAB = "/etc/fstab"

_ST_RDONLY = 1
_SIZES = ("f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_flag")
# Errors of statvfs that concern the calling process or the kernel's memory, not the mount: statvfs(3).
_CALLER_ERRORS = frozenset(
    {"EBADF", "EFAULT", "EINTR", "EINVAL", "ELOOP", "EMFILE", "ENAMETOOLONG", "ENFILE", "ENOMEM", "ENOSYS"}
)
_MEASURED = ("fs.used_ratio", "fs.free", "fs.inodes_used_ratio")


@source
class FilesystemSource:
    """Reads the mount table and calls statvfs for one mount of each device, through the file-system lane."""

    name = "filesystem"
    interval = 30.0
    deadline = 20.0
    paths: tuple[str, ...] = (_MOUNTS, "call:statvfs")
    signals = signals_by_name(
        Signal("fs.type", "state", "type of the file system, as mounted"),
        Signal("fs.device", "state", "device or server that it is on"),
        Signal("fs.network", "state", "whether another machine serves it"),
        Signal("fs.used_ratio", "gauge", "share in use, as df shows it: of what users can use", "ratio"),
        Signal("fs.free", "gauge", "space left for users", "bytes"),
        Signal("fs.inodes_used_ratio", "gauge", "share of its inodes in use", "ratio"),
        Signal("fs.read_only", "state", "whether it is mounted read-only, or became so"),
        Signal("fs.fstab_writable", "state", "true where /etc/fstab names the mount, and not as read-only"),
        Signal("fs.answers", "state", "whether statvfs returned, with or without an error"),
        Signal("fs.hung", "state", "whether the process that called statvfs did not end on SIGKILL"),
        Signal("fs.error", "state", "error that statvfs returned, empty if it succeeded"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        text = read_text(machine, _MOUNTS)
        if not isinstance(text, str) or (text.strip() and not any(parse_mounts(text))):
            detail = (
                f"{_MOUNTS}: {failure_reason(text)}"
                if isinstance(text, OSError)
                else implausible(_MOUNTS, text)
            )
            yield Observation(self.name, targets.NODE, "failed", detail=detail)
            return
        checked = mounts_to_check(text)
        if not checked:
            return
        fstab = ObservationDraft(machine, self.name, targets.NODE)
        writable = {
            mount.path.rstrip("/") or "/"
            for mount in parse_mounts(fstab.read_text(_FSTAB, "fs.fstab_writable") or "")
            if not mount.read_only
        }
        answer = machine.statvfs(tuple(mount.path for mount in checked))
        results = {entry.call: entry.result for entry in answer.results}
        stalled = {entry.call for entry in (*answer.stalled, *answer.skipped)}
        for mount in checked:
            draft = ObservationDraft(machine, self.name, targets.filesystem_target(mount.path))
            draft.unread.update(fstab.unread)
            draft.signals.update(
                {
                    "fs.type": mount.type,
                    "fs.device": mount.device,
                    "fs.network": mount.is_network,
                    "fs.read_only": mount.read_only,
                }
            )
            if mount.path in writable:
                draft.signals["fs.fstab_writable"] = True
            # Compared by call, not by scope: a hung call may be from an earlier round with other mounts.
            call = f"statvfs({mount.path})"
            hung = answer.hung is not None and answer.hung.call == call
            if hung or call in stalled:
                draft.signals.update({"fs.answers": False, "fs.hung": hung})
                yield draft.build(status="hung", detail=f"{call} gave no answer")
                continue
            if call in results:
                # It was unmounted since, or a mount above it hides it.
                if error_of(results[call]) in {"ENOENT", "ENOTDIR"}:
                    continue
                draft.signals.update({"fs.answers": True, "fs.hung": False})
                _take_result(draft, call, results[call])
            else:
                draft.mark_unread(_not_asked_reason(answer), "fs.answers", "fs.hung", "fs.error", *_MEASURED)
            yield draft.build()


def _not_asked_reason(answer: LaneResult) -> str:
    if answer.hung is not None:
        return f"not asked: {answer.hung.call} hangs and blocks the worker process"
    if answer.interrupted is not None:
        return f"not asked: {answer.interrupted.call} used up the time"
    return answer.failed or answer.missing or "not asked"


def _take_result(draft: ObservationDraft, call: str, result: Any) -> None:
    error = error_of(result)
    if error in {"EACCES", "EPERM"}:
        # This user may not enter a directory of the path; the file system itself may be healthy.
        draft.mark_unread(DENIED, "fs.error", *_MEASURED)
        return
    if error in _CALLER_ERRORS:
        draft.mark_unread(f"statvfs failed ({error})", "fs.error", *_MEASURED)
        return
    if error:
        draft.signals["fs.error"] = error
        draft.mark_unread(f"statvfs failed ({error})", *_MEASURED)
        return
    draft.signals["fs.error"] = ""
    if not isinstance(result, dict) or not all(_is_size(result.get(field)) for field in _SIZES):
        draft.mark_unread(implausible(call, result), *_MEASURED)
        return
    size, blocks, free, available, files, free_files, flag = (result[field] for field in _SIZES)
    used = blocks - free
    draft.parse("fs.free", call, str(available * size), parse_count)
    if used >= 0 and used + available > 0:
        draft.signals["fs.used_ratio"] = used / (used + available)
    if files > 0:
        draft.signals["fs.inodes_used_ratio"] = max(0, files - free_files) / files
    if flag & _ST_RDONLY:
        draft.signals["fs.read_only"] = True


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value >= 0
