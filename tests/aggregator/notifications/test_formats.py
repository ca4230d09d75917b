"""Bodies and signatures of notifications."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import body_of, notification_of
from nodeguard.aggregator.notifications.settings import WebhookFormat
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.hardware import Hardware
from nodeguard.model.incident import IncidentState
from tests.aggregator.notifications.scene import NOW, incident, notification, webhook

MARKUP = "<script>*bold* [link](https://evil.example) & <@U123>"


def body(form: WebhookFormat, state: IncidentState = IncidentState.MARKED, message: str = "lost") -> Any:
    return json.loads(body_of(webhook(form=form), notification(state, message)))


def test_json_has_all_fields_of_the_incident() -> None:
    content = body("json")
    assert content.pop("id").startswith("gpu-1-lost-1-marked-")
    assert content == {
        "version": 1,
        "change": "opened",
        "text": "gpu-1: lost",
        "at": "2023-11-14T22:13:20Z",
        "since": "2023-11-14T22:12:20Z",
        "incident": "gpu-1-lost",
        "node": "gpu-1",
        "domain": "",
        "target": "gpu/0000:3b:00",
        "cause": "gpu-lost",
        "health": "fatal",
        "state": "Marked",
        "action": "reboot-node",
        "injected": False,
        "hardware": None,
        "guidance": None,
        "jobs": [],
    }
    assert body("json", IncidentState.RESOLVED)["change"] == "resolved"


@pytest.mark.parametrize("form", ["json", "slack", "teams", "pagerduty"])
def test_the_gpu_is_named_as_a_person_finds_it(form: WebhookFormat) -> None:
    lost = replace(incident(), hardware=Hardware(5, "1650522", "692-2G520", 6))
    content = json.loads(body_of(webhook(form=form), notification_of(lost, "opened", "the GPU is lost", NOW)))
    if form == "json":
        assert content["hardware"] == {
            "index": 5, "serial": "1650522", "board_part_number": "692-2G520", "module_id": 6
        }  # fmt: skip
    else:
        text = json.dumps(content).replace("\\", "")
        assert "gpu-lost on GPU 5 (0000:3b:00, serial 1650522, module 6)" in text


def test_each_end_has_its_own_id_which_all_aggregators_know() -> None:
    """A receiver that ignores known ids gets the end of each incident, and not a second time."""
    end = incident(IncidentState.RESOLVED)

    def ids(*first_seen: float) -> set[str]:
        return {
            notification_of(
                replace(end, first_seen=NOW + seconds), "resolved", "over", NOW + 300.0 * number
            ).id
            for number, seconds in enumerate(first_seen)
        }

    # After a day without the fault its occurrences are counted from 1 again.
    assert len(ids(0.0, 36 * 3600.0)) == 2
    # A replica computes the start from the age in a report; an incident in the cluster has whole seconds.
    assert len(ids(0.9, 0.93, 0.0)) == 1


@pytest.mark.parametrize("form", ["json", "slack", "teams", "pagerduty"])
def test_an_injected_fault_is_called_injected_first(form: WebhookFormat) -> None:
    change = notification_of(replace(incident(), injected=True), "opened", "the GPU is lost", NOW)
    content = json.loads(body_of(webhook(form=form), change))
    text = json.dumps(content)
    if form == "json":
        assert (content["injected"], content["text"]) == (True, "injected: gpu-1: the GPU is lost")
    elif form == "pagerduty":
        assert content["payload"]["summary"] == "injected: gpu-1: the GPU is lost"
        assert content["payload"]["custom_details"]["Injected"].startswith("yes, for a rehearsal")
    else:
        assert '"INJECTED \\u00b7 OPENED \\u00b7 fatal \\u00b7 gpu-1' in text


def test_slack_shows_markup_of_others_as_text() -> None:
    text = json.dumps(body("slack", message=MARKUP))
    assert "<" not in text
    assert "&lt;script&gt;" in text
    content = body("slack")
    assert content["blocks"][0]["text"] == {"type": "plain_text", "text": "OPENED · fatal · gpu-1"}
    assert {"type": "mrkdwn", "text": "*Action*\nreboot the node"} in content["blocks"][2]["fields"]


def test_slack_accepts_a_text_that_is_mostly_markup() -> None:
    text = body("slack", message="&" * 2000)["blocks"][1]["text"]["text"]
    # Slack refuses more than 3,000 characters, and the notification with them.
    assert len(text) <= 3000
    assert text.removeprefix("gpu-1: ").replace("&amp;", "") == ""


@pytest.mark.parametrize("form", ["slack", "teams"])
def test_a_card_has_the_jobs_of_an_end_in_one_bounded_fact(form: WebhookFormat) -> None:
    jobs = [f"team-{number}/{'x' * 400}" for number in range(20)]
    ended = notification_of(incident(IncidentState.RESOLVED), "resolved", "over", NOW, jobs=jobs)
    content = json.dumps(json.loads(body_of(webhook(form=form), ended)))
    assert content.count("Jobs") == 1
    assert "team-7/" in content
    assert "team-8/" not in content
    assert "x" * 200 not in content


def test_slack_accepts_names_that_are_mostly_markup() -> None:
    named = replace(incident(), target=f"gpu/{'&' * 250}", cause="&" * 256)
    content = json.loads(body_of(webhook(form="slack"), notification_of(named, "opened", "lost", NOW)))
    # Slack refuses a field with more than 2,000 characters, and the notification with it.
    assert all(len(field["text"]) <= 2000 for field in content["blocks"][2]["fields"])


@pytest.mark.parametrize("form", ["slack", "teams", "pagerduty"])
def test_no_control_character_of_a_report_reaches_a_person(form: WebhookFormat) -> None:
    outside = "\x1b[31m\u202e\u200b\nOPENED"
    named = replace(incident(), target=f"gpu/{outside}", cause=outside, hardware=Hardware(5, outside))
    content = json.loads(body_of(webhook(form=form), notification_of(named, "opened", outside, NOW)))

    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [text for item in items for text in texts(item)]

    # Slack has the name and the value of a field on lines of their own.
    assert [text for text in texts(content) if not text.replace("*\n", "", 1).isprintable()] == []


def test_teams_is_an_adaptive_card_without_markdown_of_others() -> None:
    (attachment,) = body("teams", message=MARKUP)["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    title, text, facts = attachment["content"]["body"]
    assert (title["text"], title["color"]) == ("OPENED · fatal · gpu-1", "attention")
    assert "](" not in text["text"].replace("\\]\\(", "")
    assert {"title": "Action", "value": "reboot the node"} in facts["facts"]
    (attachment,) = body("teams", IncidentState.RESOLVED)["attachments"]
    assert attachment["content"]["body"][0]["color"] == "good"


def test_pagerduty_triggers_and_resolves_one_incident() -> None:
    trigger, resolve = body("pagerduty"), body("pagerduty", IncidentState.RESOLVED)
    expected = ("trigger", "gpu-1-lost", "key")
    assert (trigger["event_action"], trigger["dedup_key"], trigger["routing_key"]) == expected
    assert trigger["payload"]["severity"] == "critical"
    assert resolve == {"routing_key": "key", "event_action": "resolve", "dedup_key": "gpu-1-lost"}


def test_pagerduty_has_info_for_a_check_that_is_not_enforced() -> None:
    assert body("pagerduty", IncidentState.DRY_RUN)["payload"]["severity"] == "info"


def test_the_notification_of_a_domain_has_who_acts_in_place_of_an_action() -> None:
    guidance = Guidance("the network team", "The leaf switch.", "Leave them.", "The ports are active.")
    domain = replace(incident(), node="", domain="fabric/p0/r0", target="fabric/p0/r0")
    opened = notification_of(domain, "opened", "6 of 8 nodes lost a link", 1e9, guidance)
    assert opened.guidance == guidance
    assert b"the network team" in body_of(webhook(form="slack"), opened)
    assert b"Action" not in body_of(webhook(form="slack"), opened)
