"""The objects that the earlier version wrote, recorded for checkouts without its commit.

`python -m tests.e2e.earlier_objects` records them again, after a change of tests/e2e/upgrade.py.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from nodeguard.model.mark import EPOCH_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import PREFIX
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster, cluster
from tests.e2e.devices import RULES
from tests.e2e.mark_history import NODES
from tests.e2e.scene import INCIDENTS
from tests.e2e.upgrade import NAMES, upgrade_scene

_FILE = Path(__file__).with_name("earlier_objects.json.gz")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

# The fields of a record of marks with a time, in seconds since the epoch.
_RECORD_TIME = re.compile(r'"(at|since|ended)":([0-9.]+)')


def record() -> None:
    """Write the objects of a fleet that the earlier version has marked."""
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster() as made,
        upgrade_scene(made, Path(directory)) as scene,
    ):
        scene.mark(soak="10m")
        scene.begin_soak()
        scene.settle()
        kinds = {"nodes": NODES, "rules": RULES, "incidents": INCIDENTS}
        objects: Object = {
            kind: [_trimmed(item) for item in made.api.get(path)["items"]] for kind, path in kinds.items()
        }
        objects["at"] = time.time()
    text = json.dumps(objects, indent=1, sort_keys=True).encode()
    _FILE.write_bytes(gzip.compress(text, mtime=0))


def load(cluster: Cluster, uids: Mapping[str, str]) -> None:
    """Create the objects as if they were written just now. uids: of the present Nodes, by name."""
    text = gzip.decompress(_FILE.read_bytes()).decode()
    seconds = int(time.time() - json.loads(text)["at"])
    objects = json.loads(_shifted(text, seconds))
    before = {item["metadata"]["name"]: item["metadata"]["uid"] for item in objects["nodes"]}
    assert set(before) == set(NAMES)
    for item in objects["nodes"]:
        if EPOCH_ANNOTATION in _shift_record(item, seconds):
            _load_node(cluster, item)
    for item in objects["rules"]:
        _shift_record(item, seconds)
        _load_rule(cluster, item, uids)
    for item in objects["incidents"]:
        _load_incident(cluster, item, before, uids)


def _load_node(cluster: Cluster, item: Object) -> None:
    path = f"{NODES}/{item['metadata']['name']}"
    own = {key: item["metadata"]["annotations"][key] for key in (STATE_ANNOTATION, EPOCH_ANNOTATION)}
    taints = [taint for taint in item["spec"].get("taints", ()) if taint["key"].startswith(PREFIX)]
    spec = {"taints": taints, "unschedulable": item["spec"].get("unschedulable")}
    cluster.api.patch(path, {"metadata": {"annotations": own}, "spec": spec})
    conditions = [made for made in item["status"]["conditions"] if made["type"] == "NodeguardHealthy"]
    cluster.api.patch(f"{path}/status", {"status": {"conditions": conditions}}, "strategic-merge")


def _load_rule(cluster: Cluster, item: Object, uids: Mapping[str, str]) -> None:
    [owner] = item["metadata"]["ownerReferences"]
    assert item["metadata"]["name"] == _rule_name(owner["uid"], item), "the recording is not of this version"
    owner["uid"] = uids[owner["name"]]
    item["metadata"]["name"] = _rule_name(owner["uid"], item)
    del item["metadata"]["uid"]
    cluster.api.post(RULES, item)


def _load_incident(
    cluster: Cluster, item: Object, before: Mapping[str, str], uids: Mapping[str, str]
) -> None:
    status, metadata = item["status"], item["metadata"]
    if node := status.get("node"):
        suffix = _incident_hash(before[node], status["target"])
        assert metadata["name"].endswith(suffix), "the recording is not of this version"
        metadata["name"] = metadata["name"].removesuffix(suffix) + _incident_hash(
            uids[node], status["target"]
        )
        status["nodeUID"] = uids[node]
    del metadata["uid"]
    cluster.api.post(INCIDENTS, item)
    cluster.api.patch(f"{INCIDENTS}/{metadata['name']}/status", {"status": status})


def _trimmed(item: Object) -> Object:
    """Return an object without what the server adds."""
    metadata = {key: item["metadata"][key] for key in _KEPT if key in item["metadata"]}
    return {**item, "metadata": metadata}


_KEPT = ("name", "labels", "annotations", "ownerReferences", "uid")


def _shifted(text: str, seconds: float) -> str:
    """Return text with all times that many seconds later."""

    def timestamp(match: re.Match[str]) -> str:
        at = datetime.strptime(match[0], _FORMAT).replace(tzinfo=UTC)
        return (at + timedelta(seconds=seconds)).strftime(_FORMAT)

    return _TIME.sub(timestamp, text)


def _shift_record(item: Object, seconds: float) -> dict[str, str]:
    """Move the times in an object's record of marks. Returns its annotations."""
    annotations: dict[str, str] = item["metadata"].get("annotations", {})
    if STATE_ANNOTATION in annotations:
        annotations[STATE_ANNOTATION] = _RECORD_TIME.sub(
            lambda match: f'"{match[1]}":{float(match[2]) + seconds}', annotations[STATE_ANNOTATION]
        )
    return annotations


def _rule_name(uid: str, rule: Any) -> str:
    selector = rule["spec"]["deviceSelector"]
    words = "\0".join((uid, selector["driver"], selector["pool"], selector["device"]))
    return f"nodeguard-{blake2b(words.encode(), digest_size=10).hexdigest()}"


def _incident_hash(uid: str, target: str) -> str:
    return blake2b(f"{uid} {target}".encode(), digest_size=4).hexdigest()


if __name__ == "__main__":
    record()
