"""Round trip: a recorded bundle reads like the machine, for any tree, failures and order of readings."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeguard.bundle.file_tree import resolve
from nodeguard.bundle.layer import Directory, Link
from nodeguard.bundle.observed_tree import portable_link
from nodeguard.bundle.recorded_tree import RecordedTree, TreeCache
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.bundle.writer import BundleWriter
from tests.bundle.writing import MANIFEST, later, open_writer, outcome, result_or_error

names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "1", "é\n2"])
targets = st.sampled_from(["a", "b/c", "../a", "../../b", "nowhere", "../../../../a", "."])
trees = st.recursive(
    texts | targets.map(Link), lambda below: st.dictionaries(names, below, max_size=3), max_leaves=10
)


def machine_of(root: Directory, errors: dict[str, str]) -> RecordedTree:
    """Return a machine; only existing paths can have a failure."""
    existing = {
        path: failure
        for path, failure in errors.items()
        if resolve(root, path).path == path and resolve(root, path).entry
    }
    return RecordedTree(root, existing, TreeCache())


failure_names = st.sampled_from(["EIO", "stall", "hang"])
failures = st.dictionaries(st.sampled_from(["/a", "/a/a", "/a/b", "/b/c", "/c"]), failure_names, max_size=2)
recorded_machines = st.builds(machine_of, st.dictionaries(names, trees, max_size=3), failures)
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
readings = st.lists(st.tuples(st.sampled_from(["read", "names", "link"]), paths), min_size=1, max_size=12)


def record(writer: BundleWriter, machine: RecordedTree, requests: list[tuple[str, str]]) -> None:
    """Read some paths of a machine and pass the results to a writer."""
    for kind, path in requests:
        result = result_or_error(partial(getattr(machine, kind), path))
        {"read": writer.file, "names": writer.names, "link": writer.link}[kind](path, result)


def expected(machine: RecordedTree, kind: str, path: str) -> Any:
    result = outcome(partial(getattr(machine, kind), path))
    if kind == "link" and isinstance(result, str):
        return portable_link(resolve(machine.root, path, follow=False).names[:-1], result)
    return result


def differing(
    state: RecordedState, machine: RecordedTree, requests: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the requests with another result in the recording than on the machine."""
    return [
        (kind, path)
        for kind, path in requests
        if outcome(partial(getattr(state.tree, kind), path)) != expected(machine, kind, path)
    ]


@settings(deadline=None)
@example(
    [RecordedTree({"c": {"c": Link("b/c"), "a": "", "b": Link(".")}}, {}, TreeCache())], [("read", "/c/b/c")]
)
@given(st.lists(recorded_machines, min_size=1, max_size=3), readings)
@example(
    [RecordedTree({"a": {}}, {}, TreeCache()), RecordedTree({"a": ""}, {}, TreeCache())],
    [("link", "/a"), ("read", "/a/a"), ("names", "/a")],
)
@example(
    [machine_of({"a": "", "b": Link("a")}, {}), machine_of({"c": Link("a"), "a": {}}, {})],
    [("read", "/b/a"), ("names", "/c")],
)
@example(
    [machine_of({"c": Link("a")}, {}), machine_of({"c": "1"}, {"/c": "stall"})],
    [("link", "/c"), ("names", "/c/a")],
)
def test_recording_reads_like_the_machine(
    tmp_path_factory: pytest.TempPathFactory, machines: list[RecordedTree], requests: list[tuple[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("written")
    now = machines[0]

    def readlink(path: str) -> str:
        return now.link(path)

    with BundleWriter(str(directory), MANIFEST, readlink) as writer:
        for index, machine in enumerate(machines):
            now = machine
            if index:
                writer.frame(index, later(index))
            record(writer, machine, requests)
    recording = Recording.open(str(directory))
    for index, machine in enumerate(machines):
        assert differing(recording.state_at(index), machine, requests) == []


answers = st.dictionaries(
    st.sampled_from(["adjtimex", "statvfs(/)"]), st.dictionaries(names, st.integers()), max_size=2
)
records = st.lists(st.sampled_from(["6,1,1,-;one", "3,2,2,-;two\n DEVICE=+pci:0000:3b:00.0"]), max_size=2)


@settings(deadline=None)
@given(st.lists(st.tuples(answers, records), min_size=1, max_size=3))
def test_recording_returns_calls_and_log_records(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[dict[str, dict[str, int]], list[str]]]
) -> None:
    directory = tmp_path_factory.mktemp("written")
    with open_writer(directory) as writer:
        for index, (calls, new) in enumerate(turns):
            if index:
                writer.frame(index, later(index))
            for call, answer in calls.items():
                writer.call(call, answer)
            writer.log(new)
    recording = Recording.open(str(directory))
    latest: dict[str, dict[str, int]] = {}
    for index, (calls, new) in enumerate(turns):
        latest |= calls
        assert recording.state_at(index).calls == latest
        assert recording.log(index, since=index - 1) == tuple(new)
