"""DeviceTaintRules in the cluster: written where they differ, put right where somebody edited them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nodeguard.kube.client import MERGE, Api
from nodeguard.kube.lane import ConflictError, Lane
from nodeguard.kube.marking import MarkError
from nodeguard.kube.permit import JSON, Permit
from nodeguard.kube.refusal import ApiError
from nodeguard.kube.rule_object import LABEL, OURS, Seen, seen, written
from nodeguard.kube.trouble import Tell
from nodeguard.kube.versions import number
from nodeguard.kube.watching import Taker, Watching
from nodeguard.model.mark import DeviceRule

PATH = "/apis/resource.k8s.io/v1/devicetaintrules"


class DeviceRules:
    """Takes what a watch tells of nodeguard's rules, and makes them what is wanted; others it never touches.

    lane: of marks. failed: is told of a rule that is not written yet, and why.
    """

    def __init__(self, permit: Permit, lane: Lane, failed: Callable[[DeviceRule, str], None]) -> None:
        self._permit = permit
        self._lane = lane
        self._failed = failed
        self._seen: dict[str, Seen] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._wanted: dict[str, DeviceRule] | None = None
        self._is_synced = False

    def want(self, rules: Iterable[DeviceRule]) -> None:
        """Have these rules and no others of nodeguard's."""
        before, self._wanted = self._wanted or {}, {one.name: one for one in rules}
        self._compare_all(before)

    def keep(self, rule: DeviceRule) -> None:
        """Have one rule beside those that are wanted."""
        if self._wanted is not None:
            self._wanted[rule.name] = rule
            self._compare(rule.name)

    def is_under_way(self, name: str) -> bool:
        """Whether a rule is being written."""
        return self._lane.is_under_way(("rule", name))

    def standing(self) -> list[DeviceRule]:
        """The rules that the cluster has of nodeguard."""
        return [one.rule for one in self._seen.values()]

    def changed(self, thing: Seen) -> None:
        """An object is new or has changed."""
        had = self._seen.get(thing.rule.name)
        if had is None or had.uid != thing.uid or number(had.version) < number(thing.version):
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
            self._permit.check(f"DeviceTaintRule {name}", had.annotations)
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
        body = written(wanted, self._permit.epoch)
        try:
            self._note(seen(await self._permit.write("POST", PATH, body, JSON)))
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return
        one = seen(await self._permit.read(f"{PATH}/{wanted.name}"))
        if one.is_ours:
            self._note(one)
            raise ConflictError
        raise ApiError(
            409,
            "Foreign",
            f"the DeviceTaintRule {wanted.name} is not nodeguard's, which leaves it alone: remove it,"
            f" or give it the label {LABEL}={OURS}",
        )

    async def _put_right(self, had: Seen, wanted: DeviceRule) -> None:
        body = written(wanted, self._permit.epoch)
        body["metadata"] |= {"uid": had.uid, "resourceVersion": had.version}
        self._note(seen(await self._permit.write("PATCH", f"{PATH}/{wanted.name}", body, MERGE)))

    async def _delete(self, had: Seen | None) -> None:
        if had is not None:
            body = {"preconditions": {"uid": had.uid, "resourceVersion": had.version}}
            await self._permit.write("DELETE", f"{PATH}/{had.rule.name}", body, JSON)
            self._drop(had)

    def _refused(self, had: Seen | None, wanted: DeviceRule | None, error: ApiError) -> None:
        if error.status == 404 and had is not None:
            self._drop(had)
            if wanted is None:
                return
        if error.status == 404 or error.reason == "Conflict":
            raise ConflictError from None
        if wanted is not None:
            self._failed(wanted, error.message)
        raise error

    def _note(self, one: Seen) -> None:
        """What an answer says, which a watch tells later."""
        self._seen[one.rule.name] = one
        self._names[one.uid] = one.rule.name

    def _drop(self, had: Seen) -> None:
        if self._seen.get(had.rule.name) is had:
            del self._seen[had.rule.name]


def watching(api: Api, taker: Taker[Seen], tell: Tell) -> Watching[Seen]:
    """What follows nodeguard's rules of a cluster."""
    return Watching(api, PATH, "DeviceTaintRules", seen, taker, tell, {"labelSelector": f"{LABEL}={OURS}"})
