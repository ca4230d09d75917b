"""DeviceTaintRules: each keeps new work off one device of a Node. Their encoding, and their writer.

The Node owns the rule, so Kubernetes deletes both together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.kube.client import MERGE_PATCH, ApiClient, version_number
from nodeguard.kube.errors import ApiError, is_refusal
from nodeguard.kube.fenced_client import JSON, FencedClient
from nodeguard.kube.node_patch import MarkError
from nodeguard.kube.objects import OwnerReference, TypedObject
from nodeguard.kube.repeated_writes import RepeatedWrites
from nodeguard.kube.watch import Watch, WatchHandler
from nodeguard.kube.write_queue import ConflictError, WriteQueue
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import EPOCH_ANNOTATION, NO_SCHEDULE, STATE_ANNOTATION
from nodeguard.model.node import PREFIX, Taint

logger = logging.getLogger(__name__)

# The label and value that distinguish nodeguard's rules from all others.
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "nodeguard"


class _Selector(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""


class _Spec(Struct):
    taint: Taint
    selector: _Selector = field(name="deviceSelector", default_factory=_Selector)


class _Object(TypedObject):
    spec: _Spec


class ObservedRule(Struct, frozen=True):
    """A rule in the cluster. uid, version: of the object. annotations: those with nodeguard's prefix.
    is_managed: whether it has nodeguard's label.
    """

    uid: str
    version: str
    rule: DeviceRule
    annotations: dict[str, str]
    is_managed: bool


_DECODER = JsonDecoder(_Object)


def decode_rule(raw: msgspec.Raw | bytes) -> ObservedRule:
    """Return the rule of an object's JSON. Raises msgspec.MsgspecError."""
    decoded = _DECODER.decode(raw)
    meta, selector, taint = decoded.metadata, decoded.spec.selector, decoded.spec.taint
    owner = next((owner for owner in meta.owners if owner.kind == "Node"), OwnerReference())
    annotations = {key: text for key, text in meta.annotations.items() if key.startswith(PREFIX)}
    rule = DeviceRule(
        name=meta.name,
        node=owner.name,
        uid=owner.uid,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
        # Without the time, which the server adds.
        taint=Taint(taint.key, taint.effect, taint.value),
        state=annotations.get(STATE_ANNOTATION, ""),
    )
    return ObservedRule(
        meta.uid, meta.version, rule, annotations, meta.labels.get(MANAGED_BY_LABEL) == MANAGER
    )


def rule_body(rule: DeviceRule, epoch: int) -> dict[str, Any]:
    """Return the object of a rule, which is also the merge patch that corrects one. Raises MarkError."""
    if rule.taint.effect != NO_SCHEDULE:
        raise MarkError(f"{rule.name}: the effect of a device's taint must be {NO_SCHEDULE}")
    if not (rule.driver and rule.pool and rule.device):
        raise MarkError(f"{rule.name}: a rule without driver, pool and device would taint many devices")
    owner = {"apiVersion": "v1", "kind": "Node", "name": rule.node, "uid": rule.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule.name,
            "labels": {MANAGED_BY_LABEL: MANAGER},
            "annotations": {STATE_ANNOTATION: rule.state, EPOCH_ANNOTATION: str(epoch)},
            "ownerReferences": [owner],
        },
        "spec": {
            "deviceSelector": {"driver": rule.driver, "pool": rule.pool, "device": rule.device},
            "taint": {"key": rule.taint.key, "value": rule.taint.value, "effect": rule.taint.effect},
        },
    }


PATH = "/apis/resource.k8s.io/v1/devicetaintrules"

_UNDONE = "another client deletes or changes the DeviceTaintRule {}"


class DeviceRuleWriter:
    """Writes nodeguard's rules, and never those of others. It is the handler of a watch of the rules.

    queue: of marks. on_error: called with the name of a rule and the error of its write.
    """

    def __init__(
        self, client: FencedClient, queue: WriteQueue, on_error: Callable[[str, WriteError], None]
    ) -> None:
        self._client = client
        self._queue = queue
        self._on_error = on_error
        self._observed: dict[str, ObservedRule] = {}  # by name
        self._names: dict[str, str] = {}  # by uid
        self._desired: dict[str, DeviceRule] | None = None
        self._is_synced = False
        self._repeats = RepeatedWrites()  # of rules that another client deletes or changes

    def set_desired(self, rules: Iterable[DeviceRule]) -> None:
        """Set all rules that are desired. Other rules of nodeguard are deleted."""
        before, self._desired = self._desired or {}, {rule.name: rule for rule in rules}
        self._compare_all(before)

    def add_desired(self, rule: DeviceRule) -> None:
        """Add a rule to those that are desired."""
        if self._desired is not None:
            self._desired[rule.name] = rule
            self._compare(rule.name)

    def is_in_flight(self, name: str) -> bool:
        """Return whether a rule is being written."""
        return self._queue.is_in_flight(("rule", name))

    def current_rules(self) -> list[DeviceRule]:
        """Return nodeguard's rules that the cluster has."""
        return [observed.rule for observed in self._observed.values()]

    def changed(self, thing: ObservedRule) -> None:
        """Handle a rule that is new or has changed."""
        self._store(thing)
        self._compare(thing.rule.name)

    def gone(self, uid: str) -> None:
        """Handle a rule that was deleted or lost nodeguard's label; one that is desired is created again."""
        name = self._names.pop(uid)
        if (observed := self._observed.get(name)) is not None and observed.uid == uid:
            del self._observed[name]
            self._compare(name)

    def synced(self) -> None:
        """Handle the end of the list: all rules were reported."""
        self._is_synced = True
        self._compare_all()

    def _compare_all(self, before: Iterable[str] = ()) -> None:
        for name in {*before, *(self._desired or ()), *self._observed}:
            self._compare(name)

    def _compare(self, name: str) -> None:
        if not self._is_synced or self._desired is None:
            return
        desired, observed = self._desired.get(name), self._observed.get(name)
        if desired == (observed and observed.rule):
            self._queue.drop(("rule", name))
        else:
            self._queue.put(("rule", name), (name, desired), self._write)

    async def _write(self, change: tuple[str, DeviceRule | None]) -> None:
        name, desired = change
        observed = self._observed.get(name)
        if observed is not None:
            self._client.check_epoch(f"DeviceTaintRule {name}", observed.annotations)
        try:
            if desired is None:
                await self._delete(observed)
                self._repeats.forget(name)
            elif observed is None or observed.rule != desired:
                self._repeats.check(name, desired, _UNDONE.format(name))
                await (self._create(desired) if observed is None else self._correct(observed, desired))
                self._repeats.record(name, desired)
        except MarkError as error:
            logger.warning("cannot write the DeviceTaintRule", extra={"rule": name, "error": str(error)})
            self._on_error(name, WriteError(str(error), is_refused=True))
        except ApiError as error:
            self._on_error(name, WriteError(error.message, is_refusal(error)))
            self._handle_error(observed, desired, error)

    async def _create(self, desired: DeviceRule) -> None:
        """Raise MarkError, ApiError; ConflictError if the rule exists already."""
        body = rule_body(desired, self._client.epoch)
        try:
            self._store(decode_rule(await self._client.write("POST", PATH, body, JSON)))
        except ApiError as error:
            if error.status != 409:
                raise
        else:
            return
        existing = decode_rule(await self._client.read(f"{PATH}/{desired.name}"))
        if existing.is_managed:
            self._store(existing)
            raise ConflictError
        raise ApiError(
            409,
            "Foreign",
            f"the DeviceTaintRule {desired.name} does not belong to nodeguard and is not changed: delete it,"
            f" or give it the label {MANAGED_BY_LABEL}={MANAGER}",
        )

    async def _correct(self, observed: ObservedRule, desired: DeviceRule) -> None:
        body = rule_body(desired, self._client.epoch)
        body["metadata"] |= {"uid": observed.uid, "resourceVersion": observed.version}
        response = await self._client.write("PATCH", f"{PATH}/{desired.name}", body, MERGE_PATCH)
        self._store(decode_rule(response))

    async def _delete(self, observed: ObservedRule | None) -> None:
        if observed is not None:
            body = {"preconditions": {"uid": observed.uid, "resourceVersion": observed.version}}
            await self._client.write("DELETE", f"{PATH}/{observed.rule.name}", body, JSON)
            self._drop(observed)

    def _handle_error(
        self, observed: ObservedRule | None, desired: DeviceRule | None, error: ApiError
    ) -> None:
        if error.status == 404 and observed is not None:
            self._drop(observed)
            if desired is None:
                return
        if error.status == 404 or error.reason == "Conflict":
            raise ConflictError from None
        raise error

    def _store(self, observed: ObservedRule) -> None:
        """Store a rule from the watch or from a response, whichever is newer: they arrive in any order."""
        name = observed.rule.name
        before = self._observed.get(name)
        if (
            before is None
            or before.uid != observed.uid
            or version_number(before.version) < version_number(observed.version)
        ):
            self._observed[name] = observed
            self._names[observed.uid] = name

    def _drop(self, observed: ObservedRule) -> None:
        if self._observed.get(observed.rule.name) is observed:
            del self._observed[observed.rule.name]


def watch_rules(api: ApiClient, handler: WatchHandler[ObservedRule]) -> Watch[ObservedRule]:
    """Return a watch of nodeguard's rules in a cluster."""
    query = {"labelSelector": f"{MANAGED_BY_LABEL}={MANAGER}"}
    return Watch(api, PATH, "DeviceTaintRules", decode_rule, handler, query)
