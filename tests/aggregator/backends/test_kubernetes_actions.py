"""Operators' actions of which the response is lost: no message claims that nothing was done."""

from __future__ import annotations

from typing import Any

import pytest

from nodeguard.aggregator.backends.kubernetes_actions import KubernetesOperatorActions
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.kube.errors import ApiError
from nodeguard.model.incident import FalseAlarm


class FailingApi:
    """A server that answers each request in the same way."""

    def __init__(self, answer: ApiError | bytes) -> None:
        self._answer = answer

    async def request(self, *_: object, **__: object) -> bytes:
        if isinstance(self._answer, ApiError):
            raise self._answer
        return self._answer


ANSWERS = {
    "no response": (ApiError(0, "Timeout", "no response"), True),
    "an error of the server": (ApiError(504, "Timeout", "etcd is slow"), True),
    "a page of a gateway": (b"<html>", True),
    "a refusal": (ApiError(403, "Forbidden", "not permitted"), False),
}


@pytest.mark.parametrize(("answer", "is_uncertain"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("action", ["pause", "clear", "acknowledge", "record_false_alarm", "unmark_nodes"])
async def test_an_action_with_an_uncertain_result_is_no_failure(
    action: str, answer: ApiError | bytes, is_uncertain: bool
) -> None:
    api: Any = FailingApi(answer)
    actions = KubernetesOperatorActions(api, "nodeguard", lambda _: None, lambda _: ())
    call: Any = getattr(actions, action)
    arguments: dict[str, tuple[Any, ...]] = {
        "unmark_nodes": (["gpu-1"], "a test", "Ann"),
        "record_false_alarm": ("name", FalseAlarm("Ann")),
    }
    with pytest.raises(OperatorActionError) as raised:
        await call(*arguments.get(action, ("name", "Ann")))
    text = str(raised.value)
    assert ("not done" in text or "is not unmarked" in text) == (not is_uncertain)
    assert ("repeat the command" in text) == is_uncertain


async def test_a_clear_is_refused_while_its_action_cannot_be_stored() -> None:
    api: Any = FailingApi(ApiError(500, "Unexpected", "the request was sent"))
    problem = "the server has no NodeActions: apply crd-nodeactions.yaml"
    actions = KubernetesOperatorActions(
        api,
        "nodeguard",
        lambda _: None,
        lambda _: (),
        clear_problem={"node": problem, "domain": ""}.__getitem__,
    )
    with pytest.raises(OperatorActionError, match=f"not done, as it cannot be stored: {problem}; or run"):
        await actions.clear("node", "Ann")
    with pytest.raises(OperatorActionError, match="the request was sent"):
        await actions.clear("domain", "Ann")


@pytest.mark.parametrize(
    ("stored", "field"),
    [("", "spec.falseAlarm"), ('"falseAlarm": {"by": "Ann"}', "spec.falseAlarm.withdrawn")],
)
async def test_a_statement_that_an_older_definition_drops_is_an_error(stored: str, field: str) -> None:
    metadata = '{"name": "i", "uid": "u", "resourceVersion": "1"}'
    api: Any = FailingApi(f'{{"metadata": {metadata}, "spec": {{{stored}}}}}'.encode())
    actions = KubernetesOperatorActions(api, "nodeguard", lambda _: None, lambda _: ())
    problem = f"not done, as it cannot be stored: the CustomResourceDefinition has no field {field}: apply"
    with pytest.raises(OperatorActionError, match=problem):
        await actions.record_false_alarm("i", FalseAlarm("Ann", withdrawn=True))
