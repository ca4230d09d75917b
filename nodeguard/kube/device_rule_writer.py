"""DeviceTaintRules in the cluster: written where they differ, put right where somebody edited them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeguard.kube.client import MERGE_PATCH, ApiClient, version_number
from nodeguard.kube.device_rule_object import MANAGED_BY_LABEL, MANAGER, ObservedRule, decode_rule, rule_body
from nodeguard.kube.error_log import Log
from nodeguard.kube.errors import ApiError
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.node_patch import MarkError
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.mark import DeviceRule

PATH = "/apis/resource.k8s.io/v1/devicetaintrules"


class DeviceRuleWriter:
    """Takes what a watch tells of nodeguard's rules, and makes them what is wanted; others it never touches.

    lane: of marks. failed: is told of a rule that is not written yet, and why.
    """

    def __init__(
        self, permit: FencedClient, lane: WriteQueue, failed: Callable[[DeviceRule, str], None]
    ) -> None:
        self._permit = permit
        self._lane = lane
        self._failed = failed
        self._seen: dict[str, ObservedRule] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._wanted: dict[str, DeviceRule] | None = None
        self._is_synced = False

    def set_desired(self, rules: Iterable[DeviceRule]) -> None:
        """Have these rules and no others of nodeguard's."""
        before, self._wanted = self._wanted or {}, {one.name: one for one in rules}
        self._compare_all(before)

    def add_desired(self, rule: DeviceRule) -> None:
        """Have one rule beside those that are wanted."""
        if self._wanted is not None:
            self._wanted[rule.name] = rule
            self._compare(rule.name)

    def is_in_flight(self, name: str) -> bool:
        """Whether a rule is being written."""
        return self._lane.is_in_flight(("rule", name))

    def current_rules(self) -> list[DeviceRule]:
        """The rules that the cluster has of nodeguard."""
        return [one.rule for one in self._seen.values()]

    def changed(self, thing: ObservedRule) -> None:
        """An object is new or has changed."""
        had = self._seen.get(thing.rule.name)
        if had is None or had.uid != thing.uid or version_number(had.version) < version_number(thing.version):
            self._note(thing)
        self._compare(thing.rule.name)

    def gone(self, uid: str) -> None:
        """An object is no more, or no more nodeguard's; what is still wanted is made anew."""
        name = self._names.pop(uid)
        if (one := self._seen.get(name)) is not None and one.uid == uid:
            del self._seen[name]
            self._compare(name)

    def synced(self) -> None:
        """All objects are known."""
        self._is_synced = True
        self._compare_all()

    def _compare_all(self, before: Iterable[str] = ()) -> None:
        for name in {*before, *(self._wanted or ()), *self._seen}:
            self._compare(name)

    def _compare(self, name: str) -> None:
        if not self._is_synced or self._wanted is None:
            return
        wanted, had = self._wanted.get(name), self._seen.get(name)
        if wanted == (had and had.rule):
            self._lane.drop(("rule", name))
        else:
            self._lane.put(("rule", name), (name, wanted), self._write)

    async def _write(self, what: tuple[str, DeviceRule | None]) -> None:
        name, wanted = what
        had = self._seen.get(name)
        if had is not None:
            self._permit.check_epoch(f"DeviceTaintRule {name}", had.annotations)
        try:
            if wanted is None:
                await self._delete(had)
            elif had is None:
                await self._make(wanted)
            elif had.rule != wanted:
                await self._put_right(had, wanted)
        except MarkError as error:
            assert wanted is not None
            self._failed(wanted, str(error))
        except ApiError as error:
            self._refused(had, wanted, error)

    async def _make(self, wanted: DeviceRule) -> None:
        """Raises MarkError, ApiError; ConflictError where it turns out to be there."""
        body = rule_body(wanted, self._permit.epoch)
        try:
            self._note(decode_rule(await self._permit.write("POST", PATH, body, JSON)))
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return
        one = decode_rule(await self._permit.read(f"{PATH}/{wanted.name}"))
        if one.is_managed:
            self._note(one)
            raise ConflictError
        raise ApiError(
            409,
            "Foreign",
            f"the DeviceTaintRule {wanted.name} is not nodeguard's, which leaves it alone: remove it,"
            f" or give it the label {MANAGED_BY_LABEL}={MANAGER}",
        )

    async def _put_right(self, had: ObservedRule, wanted: DeviceRule) -> None:
        body = rule_body(wanted, self._permit.epoch)
        body["metadata"] |= {"uid": had.uid, "resourceVersion": had.version}
        self._note(decode_rule(await self._permit.write("PATCH", f"{PATH}/{wanted.name}", body, MERGE_PATCH)))

    async def _delete(self, had: ObservedRule | None) -> None:
        if had is not None:
            body = {"preconditions": {"uid": had.uid, "resourceVersion": had.version}}
            await self._permit.write("DELETE", f"{PATH}/{had.rule.name}", body, JSON)
            self._drop(had)

    def _refused(self, had: ObservedRule | None, wanted: DeviceRule | None, error: ApiError) -> None:
        if error.status == 404 and had is not None:
            self._drop(had)
            if wanted is None:
                return
        if error.status == 404 or error.reason == "Conflict":
            raise ConflictError from None
        if wanted is not None:
            self._failed(wanted, error.message)
        raise error

    def _note(self, one: ObservedRule) -> None:
        """What an answer says, which a watch tells later."""
        self._seen[one.rule.name] = one
        self._names[one.uid] = one.rule.name

    def _drop(self, had: ObservedRule) -> None:
        if self._seen.get(had.rule.name) is had:
            del self._seen[had.rule.name]


def watch_rules(api: ApiClient, taker: WatchHandler[ObservedRule], tell: Log) -> Watch[ObservedRule]:
    """What follows nodeguard's rules of a cluster."""
    return Watch(
        api,
        PATH,
        "DeviceTaintRules",
        decode_rule,
        taker,
        tell,
        {"labelSelector": f"{MANAGED_BY_LABEL}={MANAGER}"},
    )
