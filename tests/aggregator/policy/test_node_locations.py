"""Tables of node locations beside a policy file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeguard.aggregator.policy.node_locations import referenced_tables
from nodeguard.aggregator.policy.policy_file import read_policy
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import SIZE_LIMIT
from nodeguard.model.policy import NodeLocation

RACKS = """\
# From the data centre's list.
node,rack,power
gpu-1,row-1/r12,feed-a/r12
gpu-2, row-1/r12 ,

"gpu-r13-*",row-1/r13,feed-b
,,
"""


def locations(
    folder: Path, table: str | bytes, policy: str = "nodeLocations: racks.csv\n"
) -> tuple[NodeLocation, ...]:
    (folder / "racks.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
    (folder / "policy.yaml").write_text(policy)
    return read_policy(folder / "policy.yaml", {}, 0.0, ()).policy.locations


def refused(folder: Path, table: str | bytes, policy: str = "nodeLocations: racks.csv\n") -> str:
    with pytest.raises(ConfigError) as caught:
        locations(folder, table, policy)
    return str(caught.value).removeprefix(f"{folder}/")


def test_each_row_has_the_locations_of_a_node_or_a_pattern(tmp_path: Path) -> None:
    expected = (
        NodeLocation("gpu-1", {"rack": "row-1/r12", "power": "feed-a/r12"}),
        NodeLocation("gpu-2", {"rack": "row-1/r12"}),
        NodeLocation("gpu-r13-*", {"rack": "row-1/r13", "power": "feed-b"}),
    )
    assert locations(tmp_path, RACKS) == expected
    spreadsheets = b"\xef\xbb\xbf" + RACKS.replace("\n", "\r\n").encode()
    assert locations(tmp_path, spreadsheets) == expected


def test_tables_and_rows_count_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "power.csv").write_text("power,node\nfeed-a,gpu-1\n")
    rows = "nodeLocations:\n- {node: gpu-*, rack: r0}\n- {file: racks.csv}\n- {file: power.csv}\n"
    assert locations(tmp_path, "node,rack\ngpu-1,r1\n", rows) == (
        NodeLocation("gpu-*", {"rack": "r0"}),
        NodeLocation("gpu-1", {"rack": "r1"}),
        NodeLocation("gpu-1", {"power": "feed-a"}),
    )


COLUMNS = "write `node` and one or more of fabric, nvlink, rack, power, zone"
INVALID: dict[str | bytes, str] = {
    "": f"racks.csv: is empty: begin with a header: {COLUMNS}",
    "# nothing\n\n": f"racks.csv: is empty: begin with a header: {COLUMNS}",
    "gpu-1,r1\n": f"racks.csv:1: gpu-1: is an unknown column: {COLUMNS}",
    "node;rack\ngpu-1;r1\n": "racks.csv:1: node;rack: is an unknown column: separate the columns by commas",
    "node\ngpu-1\n": f"racks.csv:1: is not a valid header: {COLUMNS}",
    "rack,power\nr1,feed-a\n": f"racks.csv:1: is not a valid header: {COLUMNS}",
    "node,rack,rack\n": "racks.csv:1: rack: is a duplicate: keep one of them",
    "node,rack\ngpu-1\n": "racks.csv:2: the header has 2 columns, this row 1: write one for each column; it may be empty",
    "node,rack\n\n# x\n,r1\n": "racks.csv:4: node: is empty: write a node's name or a pattern",
    "node,rack\nGPU 1,r1\n": "racks.csv:2: node: 'GPU 1' does not fit: write it like gpu-7 or rack-12-*",
    "node,rack\ngpu-1,r1\ngpu-2,row 1/r2\n": "racks.csv:3: rack: 'row 1/r2' does not fit: write it like row-1/r12 or feed-a",
    "node,rack\ngpu-1,r1\n\ngpu-1,r2\n": "racks.csv:4: rack: 'gpu-1' has one already, on line 2 of racks.csv: keep one of them",
    'node,rack\n"gpu-1,r1\n': "racks.csv:2: unexpected end of data: correct the CSV",
    b"node,rack\ngpu-1,\xff\n": "racks.csv:2: is not UTF-8: save the file as CSV in UTF-8",
    b"#" * (SIZE_LIMIT + 1): f"racks.csv: is larger than {SIZE_LIMIT} bytes: use patterns, such as gpu-r12-*",
}


@pytest.mark.parametrize("table", INVALID, ids=range(len(INVALID)))
def test_an_invalid_table_is_refused_with_file_line_column_and_remedy(tmp_path: Path, table: str) -> None:
    assert refused(tmp_path, table) == INVALID[table]


def test_a_node_has_one_location_in_each_topology(tmp_path: Path) -> None:
    rows = "nodeLocations:\n- {file: racks.csv}\n- {node: gpu-1, rack: r9}\n"
    error = refused(tmp_path, "node,rack\ngpu-1,r1\n", rows)
    assert error == "policy.yaml:3: rack: 'gpu-1' has one already, on line 2 of racks.csv: keep one of them"


def test_the_number_of_patterns_is_limited(tmp_path: Path) -> None:
    rows = "".join(f"gpu-{number}-*,r{number}\n" for number in range(1001))
    assert refused(tmp_path, f"node,rack\n{rows}") == (
        "racks.csv:1002: node: is more than 1000 patterns: name the nodes instead"
    )


def test_referenced_tables_are_beside_the_policy_file(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    for text, names in (
        ("nodeLocations: racks.csv\n", ["racks.csv"]),
        ("nodeLocations: [{file: a.csv}, {node: a, rack: r}, {file: b.csv}]\n", ["a.csv", "b.csv"]),
        ("pause: true\n", []),
        ("[]\n", []),
        ("pause: [\n", []),
    ):
        policy.write_text(text)
        assert referenced_tables(policy) == tuple(tmp_path / name for name in names)
    assert referenced_tables(tmp_path / "none.yaml") == ()


CELLS = st.sampled_from(["node", "rack", "gpu-1", "gpu-*", "r1/r2", "", "#", '"', " ", "\n", "é", "a,b"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELLS, max_size=3), max_size=6))
def test_any_table_is_read_or_refused_in_one_line(tmp_path: Path, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["node", "rack"], *rows])
    for table in (text.getvalue(), "\n".join(",".join(row) for row in rows)):
        try:
            result = locations(tmp_path, table)
        except ConfigError as error:
            assert "\n" not in str(error)
            assert error.problem
            assert error.remedy
        else:
            assert all(location.paths for location in result)
