from __future__ import annotations

import json

from nodeguard.bundle.anonymise import Anonymiser, Replacements
from nodeguard.bundle.layer_files import anonymous_response

NAME = "http(GET http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text)"
EVENTS = "http(GET http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01)"


def test_machine_has_the_same_replacement_in_all_responses() -> None:
    new = Anonymiser("gpu000012", Replacements(b"key"))
    event = {"EventType": "Reboot", "Resources": ["gpu-vmss_12"], "Description": "gpu000012 is old"}
    body = json.dumps({"DocumentIncarnation": 7, "Events": [{**event, "EventId": "abc-1"}]})
    own = anonymous_response(NAME, {"status": 200, "body": "gpu-vmss_12"}, new)
    response = anonymous_response(EVENTS, {"status": 200, "body": body}, new)
    [event] = json.loads(response["body"])["Events"]
    assert event["Resources"] == [own["body"]]
    assert (event["EventType"], response["status"]) == ("Reboot", 200)
    assert not any(name in response["body"] + own["body"] for name in ("gpu-vmss_12", "gpu000012", "abc-1"))


def test_response_that_is_not_json_is_text() -> None:
    new = Anonymiser("node-17", Replacements(b"key"))
    assert anonymous_response(EVENTS, {"status": 200, "body": "NONE"}, new)["body"] == "NONE"
    assert "node-17" not in anonymous_response(EVENTS, {"status": 200, "body": "<p>node-17</p>"}, new)["body"]


def test_response_without_content_does_not_change() -> None:
    new = Anonymiser("node-17", Replacements(b"key"))
    for answer in ({"error": "stall"}, {"status": 404, "body": ""}):
        assert anonymous_response(EVENTS, answer, new) == answer
