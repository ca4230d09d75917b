"""Episodes of findings: how long each lasted and how it ended, independent of any policy. Pure."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.decide.mark_requests import resource
from nodeguard.fleet.state.history_events import HistoryEvent, NodeRemoved, ReportReceived
from nodeguard.model.finding import Health
from nodeguard.wire.report import Report, ReportedFinding


class EpisodeEnd(StrEnum):
    """The end of an episode. `resolved`: the finding ended without another known event. `reboot`: its node
    rebooted. `component-replaced`: another component is in its target. `node-deleted`: its Node was deleted.
    `open`: it has not ended.
    """

    RESOLVED = "resolved"
    REBOOT = "reboot"
    COMPONENT_REPLACED = "component-replaced"
    NODE_DELETED = "node-deleted"
    OPEN = "open"


class FindingEpisode(Struct):
    """A suspect or fatal finding, from its first report to the first report without it.

    failed_target: the target that failed. fatal_since: when it was first fatal, None for never. Times are
    seconds since the epoch.
    """

    uid: str
    check: str
    target: str
    failed_target: str
    start: float
    fatal_since: float | None = None
    end: float | None = None
    end_reason: EpisodeEnd = EpisodeEnd.OPEN


# A finding's check and target.
_FindingKey = tuple[str, str]


class FindingEpisodes:
    """Collects the episodes of a fleet. by_node: all by uid of the Node, in the order of their start.
    nodes: uids of the Nodes that reported; reports: their number.
    """

    def __init__(self) -> None:
        self.by_node: dict[str, list[FindingEpisode]] = defaultdict(list)
        self.nodes: set[str] = set()
        self.reports = 0
        self._open: dict[str, dict[_FindingKey, FindingEpisode]] = {}
        self._last_reports: dict[str, Report] = {}

    def apply_step(self, step: HistoryEvent) -> None:
        """Add a step; steps come in their order."""
        match step:
            case ReportReceived(at, uid, report):
                self.nodes.add(uid)
                self.reports += 1
                self._report(at, uid, report)
            case NodeRemoved(at, uid, _):
                for episode in self._open.pop(uid, {}).values():
                    episode.end, episode.end_reason = at, EpisodeEnd.NODE_DELETED
                self._last_reports.pop(uid, None)

    def _report(self, at: float, uid: str, report: Report) -> None:
        findings = {
            (finding.check, finding.target): finding
            for finding in report.findings
            if finding.health in _UNHEALTHY
        }
        episodes = self._open.get(uid)
        if findings or episodes:
            episodes = self._open.setdefault(uid, {})
            for key in episodes.keys() - findings.keys():
                episode = episodes.pop(key)
                episode.end, episode.end_reason = at, self._end_reason(episode, uid, report)
            for key, finding in findings.items():
                self._continue(episodes, key, at, uid, finding)
            if not episodes:
                del self._open[uid]
        self._last_reports[uid] = report

    def _continue(
        self,
        episodes: dict[_FindingKey, FindingEpisode],
        key: _FindingKey,
        at: float,
        uid: str,
        finding: ReportedFinding,
    ) -> None:
        """Start or continue the episode of a finding."""
        episode = episodes.get(key)
        if episode is None:
            episode = FindingEpisode(uid, finding.check, finding.target, resource(finding), at)
            episodes[key] = episode
            self.by_node[uid].append(episode)
        if finding.health == Health.FATAL and episode.fatal_since is None:
            episode.fatal_since = at

    def _end_reason(self, episode: FindingEpisode, uid: str, report: Report) -> EpisodeEnd:
        last = self._last_reports[uid]
        if report.boot_id != last.boot_id:
            return EpisodeEnd.REBOOT
        before, after = (source.inventory.components.get(episode.failed_target) for source in (last, report))
        is_replaced = before and after and before.id and after.id and before.id != after.id
        return EpisodeEnd.COMPONENT_REPLACED if is_replaced else EpisodeEnd.RESOLVED


_UNHEALTHY = frozenset({Health.SUSPECT, Health.FATAL})
