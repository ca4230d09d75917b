"""PodGroups of scheduling.k8s.io/v1beta1, as far as a drain needs them."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from nodeguard.kube.objects import TypedObject
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.pod import PodGroupKey


class _Spec(Struct):
    # One member is set, which names the mode.
    mode: dict[str, msgspec.Raw] | None = field(name="disruptionMode", default=None)


class _PodGroup(TypedObject):
    spec: _Spec = field(default_factory=_Spec)


_DECODER = JsonDecoder(_PodGroup)

# The label with the uid of the Job, on its pods.
_JOB_UID = "batch.kubernetes.io/controller-uid"


def pod_group_path(group: PodGroupKey) -> str:
    """Return the path of a PodGroup."""
    return f"/apis/scheduling.k8s.io/v1beta1/namespaces/{group.namespace}/podgroups/{group.name}"


def decode_selector(body: bytes) -> str:
    """Return a label selector of the pods of a PodGroup, by the Job that has created the group for them;
    empty for another owner. Raises msgspec.MsgspecError.
    """
    owners = _DECODER.decode(body).metadata.owners
    uids = (owner.uid for owner in owners if owner.controller and owner.is_job)
    return next((f"{_JOB_UID}={uid}" for uid in uids if uid), "")


def decode_uid(body: bytes) -> str:
    """Return the uid of a PodGroup. Raises msgspec.MsgspecError."""
    return _DECODER.decode(body).metadata.uid


def decode_leaves_whole(body: bytes) -> bool:
    """Return whether the pods of a PodGroup may be disrupted only together. Raises msgspec.MsgspecError, also
    for a mode of a later Kubernetes version.
    """
    mode = _DECODER.decode(body).spec.mode or {"single": msgspec.Raw(b"{}")}
    if not mode.keys() <= {"single", "all"}:
        raise msgspec.ValidationError(f"disruptionMode {', '.join(sorted(mode))} is neither single nor all")
    return "all" in mode
