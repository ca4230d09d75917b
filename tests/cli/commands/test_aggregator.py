"""Options of `nodeguard aggregator` that exclude or need each other."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from nodeguard.aggregator.access import Work
from nodeguard.aggregator.app import AggregatorApp
from nodeguard.cli.main import main
from nodeguard.cli.usage import UsageError
from nodeguard.model.failure import UserError
from tests.cli.parsed_options import aggregator_options
from tests.ports import free_address


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--certificate=a --key=b", "--certificate, --key and --publish-ca go together"),
        ("--publish-ca=a", "--certificate, --key and --publish-ca go together"),
        ("--client-ca=a", "--client-ca is for --standalone only"),
        ("--standalone --insecure --publish-ca=a", "--publish-ca is for Kubernetes only"),
        ("--standalone --insecure --context=a", "--context is for Kubernetes only"),
        ("--standalone --client-ca=a --certificate=b", "--certificate and --key go together"),
    ],
)
def test_a_wrong_combination_is_refused(words: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        aggregator_options(words.split())


def test_a_certificate_of_another_issuer_is_accepted() -> None:
    options = aggregator_options(["--certificate=a", "--key=b", "--publish-ca=c"])
    assert (options.certificate, options.key, options.publish_ca) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("value", "page"),
    [
        ("127.0.0.1:9436", ("127.0.0.1", 9436)),
        ("localhost:9436", ("localhost", 9436)),
        ("[::1]:9436", ("::1", 9436)),
        ("/run/nodeguard-aggregator/page.sock", "/run/nodeguard-aggregator/page.sock"),
    ],
)
def test_the_page_listens_on_this_machine(value: str, page: object) -> None:
    assert aggregator_options(["--page", value]).page == page


def test_without_the_option_there_is_no_page() -> None:
    assert aggregator_options([]).page is None


@pytest.mark.parametrize(
    "value", ["0.0.0.0:9436", "[::]:9436", "10.0.0.7:9436", "127.0.0.1.example.com:9436"]
)
def test_a_page_for_the_network_is_refused_with_the_remedy(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        aggregator_options(["--page", value])
    assert caught.value.code == 3
    assert "the page has no login: use 127.0.0.1:9436 with kubectl port-forward" in capsys.readouterr().err


@pytest.fixture
def _signals() -> Iterator[None]:
    """Restore the handlers of signals: the event loop of an aggregator leaves its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_garbage_is_collected_while_the_aggregator_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def end() -> None:
        seen.append(gc.isenabled())
        raise UserError("the test ends it")

    tasks = AggregatorApp.tasks

    def tasks_that_end(app: AggregatorApp) -> Iterable[Work]:
        return [*tasks(app), end()]

    monkeypatch.setattr(AggregatorApp, "tasks", tasks_that_end)
    words = f"aggregator --standalone --insecure --listen={free_address()} --metrics={free_address()}"
    assert main([*words.split(), f"--socket={tmp_path / 'socket'}"]) == 3
    assert seen == [True]
