"""Configurations of other tools: descheduler's policy, and custom plugins of node-problem-detector. Pure.

The texts come from ConfigMaps, with any content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import SIZE_LIMIT, parse_yaml
from nodeguard.kube.node_patch import HEALTHY_CONDITION
from nodeguard.model.json_decoder import JsonDecoder


class _TaintArguments(Struct):
    excluded: list[str] | None = field(name="excludedTaints", default=None)
    included: list[str] | None = field(name="includedTaints", default=None)

    def evicts(self, key: str) -> bool:
        """Return whether a taint with this key and some value causes evictions. Prefixes do not match."""
        if key in (self.excluded or ()):
            return False
        return self.included is None or any(name.partition("=")[0] == key for name in self.included)


class _PluginConfig(Struct):
    name: str = ""
    args: Any = None


class _Enabled(Struct):
    enabled: list[str] | None = None


class _Plugins(Struct):
    deschedule: _Enabled | None = None


class _Profile(Struct):
    configs: list[_PluginConfig] | None = field(name="pluginConfig", default=None)
    plugins: _Plugins | None = None


class _Policy(Struct):
    profiles: list[_Profile] | None = None


class EvictionPolicy(Struct, frozen=True):
    """The arguments of each enabled plugin of descheduler that evicts pods for taints."""

    PLUGIN: ClassVar[str] = "RemovePodsViolatingNodeTaints"

    arguments: tuple[_TaintArguments, ...]

    def evicts(self, key: str) -> bool:
        """Return whether a taint with this key and the effect NoSchedule causes evictions of running pods."""
        return any(arguments.evicts(key) for arguments in self.arguments)


def parse_eviction_policy(text: str) -> EvictionPolicy | None:
    """Return what a DeschedulerPolicy of version v1alpha2 evicts for taints; None if it cannot be read."""
    if len(text) > SIZE_LIMIT:
        return None
    try:
        policy = msgspec.convert(parse_yaml(text.encode(), "policy").data, _Policy)
        return EvictionPolicy(
            tuple(arguments for profile in policy.profiles or () for arguments in _arguments(profile))
        )
    except (ConfigError, msgspec.ValidationError):
        return None


def _arguments(profile: _Profile) -> Iterator[_TaintArguments]:
    """Yield the arguments of the plugin if a profile enables it; without that, they have no effect."""
    enabled = profile.plugins.deschedule.enabled if profile.plugins and profile.plugins.deschedule else None
    if EvictionPolicy.PLUGIN in (enabled or ()):
        configs = [item for item in profile.configs or () if item.name == EvictionPolicy.PLUGIN]
        arguments = configs[-1].args if configs else None
        yield msgspec.convert({} if arguments is None else arguments, _TaintArguments)


class _MonitorRule(Struct):
    path: str = ""


class _MonitorCondition(Struct):
    type: str = ""


class _Monitor(Struct):
    rules: list[_MonitorRule] = []
    conditions: list[_MonitorCondition] = []


class MonitorConflict(Struct, frozen=True):
    """A conflict in a configuration of node-problem-detector."""

    problem: str
    remedy: str


_EXIT_CODES = MonitorConflict(
    "a rule runs nodeguard itself: its exit code 2, a fatal fault, is Unknown for node-problem-detector",
    "run a script that maps the exit codes: see docs/concepts/neighbours.md",
)
_CONDITION = MonitorConflict(
    f"a configuration has the condition {HEALTHY_CONDITION}: both tools write it",
    "give that condition another type",
)


def monitor_conflicts(text: str) -> Iterator[MonitorConflict]:
    """Yield the conflicts of a configuration of node-problem-detector; none if the text is not one."""
    try:
        monitor = JsonDecoder(_Monitor).decode(text)
    except msgspec.DecodeError:
        return
    if any(rule.path.rpartition("/")[2] == "nodeguard" for rule in monitor.rules):
        yield _EXIT_CODES
    if any(condition.type == HEALTHY_CONDITION for condition in monitor.conditions):
        yield _CONDITION
