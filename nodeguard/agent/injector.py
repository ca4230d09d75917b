"""Faults that a local operator injects: synthetic findings of this agent, for a time.

They are kept apart from the verdict of the checks: no injected fault hides, changes or ends a finding. They
are in the memory of this process only, so a restart of the agent ends all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import EndInjections, InjectFault, InjectionRequest, InstructionOutcome
from nodeguard.agent.injected_fault import (
    InjectionError,
    find_check,
    find_target,
    injected_finding,
    quoted,
    require_duration,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.injection import MAX_INJECTIONS, Injection
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.target import target_label
from nodeguard.pipeline.pipeline import Pipeline

logger = logging.getLogger(__name__)

# Raises InjectionError unless faults of a check may be injected at a time.
RequirePermission = Callable[[str, Instant], None]

# Returns the faults that are injected at a time.
ActiveInjections = Callable[[Instant], tuple[Injection, ...]]


class _Active(Struct, frozen=True):
    """An injected fault with its end in seconds since boot, and the boot."""

    injection: Injection
    ends: float
    boot_id: str

    def is_active(self, now: Instant) -> bool:
        return self.boot_id == now.boot_id and now.mono < self.ends


class Injector:
    """Injects faults into the reports and metrics of an agent.

    pipeline: of the agent, for the present checks. require_permission: see RequirePermission. gpu_names:
    returns the targets of GPUs by index and UUID.
    """

    def __init__(
        self,
        agent: Agent,
        pipeline: Pipeline,
        require_permission: RequirePermission,
        gpu_names: Callable[[], Mapping[str, str]],
    ) -> None:
        self._agent = agent
        self._pipeline = pipeline
        self._require_permission = require_permission
        self._gpu_names = gpu_names
        self._active: dict[str, _Active] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def active(self, now: Instant) -> tuple[Injection, ...]:
        """Return the faults that are injected at a time, the oldest first."""
        return tuple(item.injection for item in self._active.values() if item.is_active(now))

    async def carry_out(self, request: InjectionRequest, uid: int) -> InstructionOutcome:
        """Inject a fault, or end injected faults. uid: of the operator's process."""
        self._forget_ended(self._agent.now())
        try:
            if isinstance(request, EndInjections):
                return InstructionOutcome(done=True, message=self._end(request))
            return InstructionOutcome(done=True, message=self._inject(request, f"uid {uid}"))
        except InjectionError as error:
            fields = {"by": f"uid {uid}", "reason": str(error)}
            logger.warning("request for an injected fault refused", extra=fields)
            return InstructionOutcome(done=False, message=str(error))

    def _inject(self, request: InjectFault, by: str) -> str:
        """Inject a fault. Returns a sentence for the operator; raises InjectionError."""
        now = self._agent.now()
        check = find_check(self._pipeline.catalogue, request.check)
        require_duration(request.seconds)
        self._require_permission(check.id, now)
        if not any(self._agent.unread_sources()):
            self._agent.evaluate()  # with the latest readings, as they decide where a check passes
        if self._agent.verdict is None or any(self._agent.unread_sources()):
            raise InjectionError("the agent has not read every source yet: try again in a minute")
        target = find_target(self._agent.verdict, check.id, request.target, self._gpu_names())
        self._require_free(check.id, target)
        fault = f"{check.id} on {target_label(target)} for {format_duration(request.seconds)}"
        if request.dry_run:
            return f"would inject {fault}: {check.health.value}, action {check.action.value}"
        self._number += 1
        name, until = str(self._number), now.wall + request.seconds
        observations = (item for reading in self._agent.latest.values() for item in reading.observations)
        units = self._pipeline.units
        finding = injected_finding(check, target, observations, units, by, now.wall, until)
        injection = Injection(name, finding, by, until)
        self._active[name] = _Active(injection, now.mono + request.seconds, now.boot_id)
        logger.warning("fault injected", extra=_fields(injection))
        self._publish()
        return f"injected {fault}, until {rfc3339(until)}; to end it: nodeguard inject --clear {name}"

    def _require_free(self, check: str, target: str) -> None:
        """Raise InjectionError for a fault that is injected already, and for one too many."""
        for item in self._active.values():
            finding = item.injection.finding
            if (finding.check, finding.target) == (check, target):
                remedy = f"end it with nodeguard inject --clear {item.injection.id}"
                until = rfc3339(item.injection.until)
                raise InjectionError(f"{check} is injected on {target} already, until {until}: {remedy}")
        if len(self._active) >= MAX_INJECTIONS:
            remedy = "end one with nodeguard inject --clear ID"
            raise InjectionError(f"{MAX_INJECTIONS} faults are injected, which is the limit: {remedy}")

    def _end(self, request: EndInjections) -> str:
        """End injected faults. Returns a sentence for the operator; raises InjectionError."""
        present = ", ".join(self._active)
        if request.id and request.id not in self._active:
            raise InjectionError(
                f"no injected fault has the id {quoted(request.id)}; the ids are: {present or 'none'}"
            )
        if not (request.id or request.all) and len(self._active) > 1:
            raise InjectionError(f"several faults are injected: name one of {present}, or use --all")
        names = [request.id] if request.id else list(self._active)
        if not names:
            return "no fault is injected"
        for name in names:
            self._forget(name)
        self._publish()
        ended = "1 injected fault" if len(names) == 1 else f"{len(names)} injected faults"
        return f"ended {ended}; a mark is released once its check has passed for the soak period"

    def _forget_ended(self, now: Instant) -> None:
        for name in [name for name, item in self._active.items() if not item.is_active(now)]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        logger.warning("injected fault ended", extra=_fields(self._active.pop(name).injection))

    def _publish(self) -> None:
        """Report the change at once, and again at the next end."""
        now = self._agent.now()
        self._forget_ended(now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._active:
            wait = max(0.0, min(item.ends for item in self._active.values()) - now.mono)
            self._timer = asyncio.get_running_loop().call_later(wait / self._agent.speed, self._publish)
        self._agent.evaluate()


def _fields(injection: Injection) -> dict[str, str]:
    finding = injection.finding
    return {
        "injection": injection.id,
        "check": finding.check,
        "target": finding.target,
        "by": injection.by,
        "until": rfc3339(injection.until),
    }
