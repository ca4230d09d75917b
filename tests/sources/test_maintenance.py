from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recording import Recording
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.observation import Observation
from nodeguard.model.target import NODE
from nodeguard.sources.machine import MetadataRequest, MetadataResponse
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.machines.metadata import MetadataClient
from nodeguard.sources.machines.recording import RecordingMachine
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.maintenance import MaintenanceSource
from tests.sources.clouds.test_aws import RETIREMENT
from tests.sources.clouds.test_azure import FILES as AZURE
from tests.sources.clouds.test_azure import REDEPLOY
from tests.sources.fake_machine import FakeMachine, ThisMachine, by_target
from tests.sources.metadata_server import TOKEN, TOKEN_PATH, Answer, Server, redirecting, serving, silent

DMI = "/sys/class/dmi/id"
AWS = {f"{DMI}/sys_vendor": "Amazon EC2\n"}
GCP = {f"{DMI}/product_name": "Google Compute Engine\n"}

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
OWN_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
SPOT = "/latest/meta-data/spot/instance-action"
SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
PREEMPTED = "/computeMetadata/v1/instance/preempted"
EVENT = "/computeMetadata/v1/instance/maintenance-event"
UPCOMING = "/computeMetadata/v1/instance/upcoming-maintenance?alt=json"

AZURE_EVENT = json.dumps(
    {"DocumentIncarnation": 7, "Events": [{**REDEPLOY, "NotBefore": "Fri, 15 Jan 2027 10:00:00 GMT"}]}
)
# Each cloud's files, and what its service says where nothing is planned.
QUIET: dict[str, tuple[dict[str, str], dict[str, Answer]]] = {
    "azure": (AZURE, {EVENTS: '{"DocumentIncarnation":8,"Events":[]}', OWN_NAME: "gpu-vmss_12"}),
    "aws": (AWS, {SCHEDULED: "[]"}),
    "gcp": (GCP, {PREEMPTED: "FALSE", EVENT: "NONE", UPCOMING: 503}),
}
NOTHING = {"maintenance.pending": False, "maintenance.kind": "none"}
UNREAD = {"maintenance.pending", "maintenance.kind"}


class Cloudy(FakeMachine):
    """A machine made of dictionaries beside a metadata service. Its clock says 2027-01-15 08:00:00 UTC."""

    def __init__(self, files: dict[str, str], server: Server, limit: float = 5.0) -> None:
        super().__init__(files)
        self.metadata, self.limit = MetadataClient(server.address), limit

    def http(self, request: MetadataRequest, within: float) -> MetadataResponse:
        return self.metadata.fetch(request, min(within, self.limit))


@pytest.fixture(params=sorted(QUIET))
def quiet(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, str], Server]]:
    files, answers = QUIET[request.param]
    with serving(answers) as server:
        yield files, server


def observed(files: dict[str, str], server: Server, **changes: Any) -> Observation:
    server.answers |= {globals()[name]: answer for name, answer in changes.items()}
    return by_target(MaintenanceSource(), Cloudy(files, server, 0.3))[NODE]


def test_nothing_is_planned(quiet: tuple[dict[str, str], Server]) -> None:
    observation = observed(*quiet)
    assert (observation.signals, observation.unreadable) == (NOTHING, {})


def test_metadata_requests_only_read(quiet: tuple[dict[str, str], Server]) -> None:
    files, server = quiet
    observed(files, server, EVENTS=AZURE_EVENT, SPOT='{"action": "stop", "time": "2027-01-15T08:02:00Z"}')
    methods = {method for method, path in server.asked if path != TOKEN_PATH}
    assert methods == {"GET"}
    assert [method for method, path in server.asked if path == TOKEN_PATH] in ([], ["PUT"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (redirecting, "redirects elsewhere (HTTP 302), which is not followed"),
        (403, "refuses to answer (HTTP 403): it may be turned off for this machine"),
        (410, "is gone for now (HTTP 410), as while it is updated"),
        (429, "is asked too often (HTTP 429), perhaps by others, too"),
        (500, "fails (HTTP 500)"),
        (503, "cannot answer at present (HTTP 503)"),
        ("<html>no</html>", "returns '<html>no</html>', which is not valid"),
        ("x" * 999, f"returns '{'x' * 60}…', which is not valid"),
        (b"nonsense\r\n", "does not answer in valid HTTP"),
        ("x" * 70_000, "answers with more than 64 KiB"),
    ],
)
@pytest.mark.parametrize(("cloud", "path"), [("azure", EVENTS), ("aws", SCHEDULED), ("gcp", EVENT)])
def test_missing_answer_is_unread(cloud: str, path: str, answer: Answer, reason: str) -> None:
    files, answers = QUIET[cloud]
    with serving({**answers, path: answer}) as server:
        observation = observed(files, server)
    assert observation.signals == {}
    assert observation.unreadable == dict.fromkeys(
        UNREAD, f"169.254.169.254{path.partition('?')[0]} {reason}"
    )


@pytest.mark.parametrize(("cloud", "path"), [("azure", EVENTS), ("aws", TOKEN_PATH), ("gcp", PREEMPTED)])
def test_metadata_service_without_an_answer_is_queried_once(cloud: str, path: str) -> None:
    files, answers = QUIET[cloud]
    with serving({**answers, path: silent}) as server:
        observation = observed(files, server)
        assert len(server.asked) == 1
    assert observation.unreadable.keys() == UNREAD
    assert "gave no answer within" in observation.unreadable["maintenance.pending"]


def test_refused_or_unrecorded_metadata_service_is_unread() -> None:
    def refuse(code: int) -> Observation:
        calls = {f"http(GET http://169.254.169.254{EVENTS})": {"error": errno.errorcode[code]}}
        return by_target(MaintenanceSource(), FakeMachine(AZURE, calls=calls))[NODE]

    where = "169.254.169.254/metadata/scheduledevents"
    reason = f"{where} cannot be asked: Connection refused (ECONNREFUSED)"
    assert refuse(errno.ECONNREFUSED).unreadable == dict.fromkeys(UNREAD, reason)
    unrecorded = by_target(MaintenanceSource(), FakeMachine(AZURE))[NODE]
    assert unrecorded.unreadable == dict.fromkeys(UNREAD, f"{where} was not recorded")


@pytest.mark.parametrize("cloud", sorted(QUIET))
def test_a_machine_without_any_such_feed(cloud: str) -> None:
    with serving({UPCOMING: 404}) as server:
        observation = observed(QUIET[cloud][0], server)
    # Where nothing is known of spot machines and of windows, 404 means that.
    assert observation.signals == ({} if cloud == "azure" else NOTHING)
    assert observation.unreadable == {}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {f"{DMI}/product_name": "PowerEdge XE9680\n", f"{DMI}/sys_vendor": "Dell Inc.\n"},
        {f"{DMI}/sys_vendor": "Amazon EC2 look-alike\n"},
        {f"{DMI}/sys_vendor": "amazon ec2\n"},
        {f"{DMI}/product_name": "Google Compute Engine 2\n", f"{DMI}/sys_vendor": "Google\n"},
        {
            f"{DMI}/chassis_asset_tag": "7783-7084-3265-9085-8269-3286-7\n",
            f"{DMI}/sys_vendor": "Microsoft Corporation\n",
        },
        {f"{DMI}/product_name": "Amazon EC2\n", f"{DMI}/chassis_asset_tag": "Google Compute Engine\n"},
    ],
)
def test_machine_of_an_unknown_cloud_sends_no_request(files: dict[str, str]) -> None:
    machine = FakeMachine(files)
    assert by_target(MaintenanceSource(), machine) == {}
    assert all(path.startswith(DMI) for path in machine.asked)


def test_dmi_that_cannot_be_read_names_no_cloud() -> None:
    assert by_target(MaintenanceSource(), FakeMachine(errors={f"{DMI}/sys_vendor": errno.EACCES})) == {}
    assert by_target(MaintenanceSource(), ThisMachine()) is not None


def test_http_modules_are_not_loaded_without_a_cloud() -> None:
    program = (
        "import sys; from nodeguard.sources.machines.live import LiveMachine\n"
        "from nodeguard.sources.maintenance import MaintenanceSource\n"
        "with LiveMachine() as machine: list(MaintenanceSource().read(machine))\n"
        "print([name for name in sys.modules if name.startswith(('http', 'nodeguard.sources.clouds'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


# Azure.


def test_azure_plans_a_redeploy() -> None:
    with serving(QUIET["azure"][1]) as server:
        observation = observed(AZURE, server, EVENTS=AZURE_EVENT, OWN_NAME="GPU-vmss_12")
    assert observation.signals == {
        "maintenance.pending": True,
        "maintenance.kind": "redeploy",
        "maintenance.what": "Azure Redeploy (Host hardware degraded)",
        "maintenance.when": "not before 2027-01-15 10:00:00 UTC",
        "maintenance.starts_in": 7200.0,
    }


def test_azure_event_of_another_machine_is_ignored() -> None:
    with serving(QUIET["azure"][1]) as server:
        observation = observed(AZURE, server, EVENTS=AZURE_EVENT, OWN_NAME="gpu-vmss_1")
    assert (observation.signals, observation.unreadable) == (NOTHING, {})


@pytest.mark.parametrize(
    ("answer", "reason"), [(429, "is asked too often"), ("", "returns nothing"), (silent, "gave no answer")]
)
def test_machine_without_its_name_reports_events_as_unread(answer: Answer, reason: str) -> None:
    with serving(QUIET["azure"][1]) as server:
        observation = observed(AZURE, server, EVENTS=AZURE_EVENT, OWN_NAME=answer)
    assert observation.signals == {}
    where = "Azure Redeploy (Host hardware degraded) is for this machine or for others: 169.254.169.254/metadata/instance/compute/name"
    assert observation.unreadable["maintenance.pending"].startswith(f"{where} {reason}")


# AWS.


def test_aws_spot_interruption_precedes_a_planned_retirement() -> None:
    event = json.dumps([{**RETIREMENT, "NotBefore": "29 Jan 2027 08:00:00 GMT"}])
    with serving({SCHEDULED: event}) as server:
        planned = observed(AWS, server)
        spot = '{"action": "terminate", "time": "2027-01-15T08:02:00Z"}'
        taken = observed(AWS, server, SPOT=spot, REBALANCE='{"noticeTime": "2027-01-15T08:00:00Z"}')
    assert planned.signals["maintenance.kind"] == "retire"
    assert planned.signals["maintenance.starts_in"] == 14 * 86_400
    assert taken.signals == {
        "maintenance.pending": True,
        "maintenance.kind": "preempt",
        "maintenance.what": "AWS spot interruption (terminate), the first of 3",
        "maintenance.when": "not before 2027-01-15 08:02:00 UTC",
        "maintenance.starts_in": 120.0,
    }


def test_risk_is_reported_without_a_planned_event() -> None:
    with serving({SCHEDULED: "[]", REBALANCE: '{"noticeTime": "2027-01-15T08:00:00Z"}'}) as server:
        observation = observed(AWS, server)
    assert observation.signals["maintenance.kind"] == "rebalance"
    assert "maintenance.starts_in" not in observation.signals


def test_planned_event_is_reported_when_other_feeds_are_unread() -> None:
    with serving({SCHEDULED: 503, SPOT: '{"action": "stop", "time": "2027-01-15T08:02:00Z"}'}) as server:
        observation = observed(AWS, server)
    assert observation.signals["maintenance.kind"] == "preempt"


@pytest.mark.parametrize(
    ("answer", "reason"), [(403, "refuses to answer (HTTP 403)"), (404, "issues no session token")]
)
def test_without_a_token_all_signals_are_unread(answer: Answer, reason: str) -> None:
    with serving({SCHEDULED: "[]", TOKEN_PATH: answer}) as server:
        observation = observed(AWS, server)
    assert reason in observation.unreadable["maintenance.pending"]


# Google.


def test_google_termination_is_within_one_hour() -> None:
    with serving(QUIET["gcp"][1]) as server:
        vague = observed(GCP, server, EVENT="TERMINATE_ON_HOST_MAINTENANCE")
        window = '{"type": "UNSCHEDULED", "maintenance_status": "PENDING", "window_start_time": "2027-01-15T08:45:00Z"}'
        exact = observed(GCP, server, UPCOMING=window)
    assert vague.signals["maintenance.when"] == "within 60 min"
    assert exact.signals == {
        "maintenance.pending": True,
        "maintenance.kind": "terminate",
        "maintenance.what": "Google TERMINATE_ON_HOST_MAINTENANCE",
        "maintenance.when": "not before 2027-01-15 08:45:00 UTC",
        "maintenance.starts_in": 2700.0,
    }


def test_google_preemption_starts_now() -> None:
    with serving(QUIET["gcp"][1]) as server:
        observation = observed(GCP, server, PREEMPTED="TRUE")
    assert (observation.signals["maintenance.kind"], observation.signals["maintenance.starts_in"]) == (
        "preempt",
        0.0,
    )


# This machine, were it one of a cloud.


def as_aws(root: Path) -> str:
    """The root directory of a machine of AWS's."""
    for path, text in {**AWS, "/proc/sys/kernel/random/boot_id": "5c8f1d2e\n"}.items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_text(text)
    return str(root)


def test_a_recording_holds_the_answers_and_no_token(tmp_path: Path) -> None:
    with (
        serving({SCHEDULED: json.dumps([RETIREMENT]), SPOT: 429}) as server,
        LiveMachine(as_aws(tmp_path / "root"), metadata=server.address) as machine,
    ):
        now = machine.now()
        manifest = Manifest("node-1", now.boot_id, now.wall, now.mono)
        with BundleWriter(str(tmp_path / "bundle"), manifest, machine.link) as writer:
            [result] = MaintenanceSource().read(RecordingMachine(machine, lambda add: add(writer)))
    assert result.signals["maintenance.kind"] == "retire"
    [again] = MaintenanceSource().read(ReplayMachine(Recording.open(str(tmp_path / "bundle"))))
    assert (again.signals["maintenance.what"], again.unreadable) == (
        result.signals["maintenance.what"],
        result.unreadable,
    )
    written = [path for path in (tmp_path / "bundle").rglob("*") if path.is_file()]
    assert [path for path in written if TOKEN in path.read_text() or "token" in path.read_text()] == []
    answers = json.loads((tmp_path / "bundle" / "calls.json").read_text())
    assert answers[f"http(GET http://169.254.169.254{SPOT})"] == {"status": 429, "body": ""}


def test_live_machine_requests_the_configured_address(tmp_path: Path) -> None:
    with (
        serving(QUIET["aws"][1]) as server,
        LiveMachine(as_aws(tmp_path), metadata=server.address) as machine,
    ):
        [first] = MaintenanceSource().read(machine)
        [second] = MaintenanceSource().read(machine)
        assert [path for method, path in server.asked if method == "PUT"] == [TOKEN_PATH]
    assert first.signals == second.signals == NOTHING
