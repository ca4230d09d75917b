"""The agent as a process: its endpoints, its log, signals and invalid options."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.bundles import bundle_path
from nodeguard.agent.check_reload import adoption_delay
from nodeguard.agent.service import Service
from nodeguard.cli.main import main
from nodeguard.model.finding import Verdict
from tests.ports import free_address
from tests.waiting import PATIENCE, PROMPTLY, until

RECORDED = ["--from", str(bundle_path("gpu-hot"))]


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run an agent, and yield its process and its URL. Its socket is temporary unless --socket is set."""
    listen = free_address()
    command = [sys.executable, "-m", "nodeguard.cli.main", "agent", "--listen", listen]
    with TemporaryDirectory() as run:
        socket_option = ("--socket", f"{run}/agent.sock")
        with subprocess.Popen(
            [*command, *socket_option, *options], stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process, f"http://{listen}"
            finally:
                process.kill()


def fetch(url: str) -> str:
    """Wait for an HTTP response, and return its body."""

    def body() -> str:
        try:
            with urlopen(url, timeout=PATIENCE) as response:
                return str(response.read().decode())
        except (OSError, HTTPError):
            return ""

    return until(body, lambda: f"{url} is not served", every=0.05)


def test_a_recorded_fault_is_in_the_metrics_and_in_the_log() -> None:
    with running("--from", str(bundle_path("gpu-hot")), "--speed", "10") as (process, url):
        assert fetch(f"{url}/readyz") == "ready\n"
        assert fetch(f"{url}/healthz") == "alive\n"
        assert 'check="gpu-memory-hot"' in fetch(f"{url}/metrics") or process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PROMPTLY)
    lines = [json.loads(line) for line in log.splitlines()]
    assert process.returncode == 0
    assert lines[-1]["msg"] == "agent stopped"
    assert lines[0]["msg"] == "agent started"


def test_once_ends_after_one_reading_of_every_source(capfd: pytest.CaptureFixture[str]) -> None:
    listen, watches = free_address(), inotify_instances()
    assert main(["agent", "--once", "--from", str(bundle_path("gpu-off-bus")), "--listen", listen]) == 0
    assert json.loads(capfd.readouterr().err.splitlines()[-1])["msg"] == "agent stopped"
    assert inotify_instances() == watches


def test_garbage_is_collected_while_the_agent_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, serve = [], Service.run

    async def look_and_serve(service: Service, host: str, port: int, *, once: bool) -> Verdict | None:
        seen.append(gc.isenabled())
        return await serve(service, host, port, once=once)

    monkeypatch.setattr(Service, "run", look_and_serve)
    main(["agent", "--once", *RECORDED, "--listen", free_address()])
    assert seen == [True]


def inotify_instances() -> int:
    """Return how many this process has; a user has 128 for all processes."""
    return [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()].count(
        "anon_inode:inotify"
    )


@pytest.mark.parametrize("pipe", [False, True])
def test_changes_of_a_bundle_are_read_by_a_running_agent(tmp_path: Path, pipe: bool) -> None:
    live = shutil.copytree(bundle_path("healthy-dgx-h100"), tmp_path / "live", symlinks=True)
    if pipe:
        (live / "kmsg").unlink()
        os.mkfifo(live / "kmsg")
    whole = (live / "nvml.json").read_text()
    with running("--from", str(live), "--speed", "20") as (process, url):
        fetch(f"{url}/readyz")
        with (live / "kmsg").open("a") as log:
            # Later readings of NVML that show a healthy GPU do not contradict it.
            log.write("1,4711,1000000000000,-;Kernel panic - not syncing: Fatal exception\n")
        wait_for_text(f"{url}/metrics", 'check="kernel-panic"')
        (live / "nvml.json").write_text(whole[:1000])
        [counter] = live.glob("sys/devices/*/*/*/infiniband/mlx5_6/ports/1/counters/link_downed")
        counter.write_text("4\n")  # in seconds a port loses its link a few times at most
        wait_for_text(f"{url}/metrics", 'check="port-flap"')
        (live / "nvml.json").write_text(whole)
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        refused = next(line for line in events if line["level"] == "warning")
        assert (refused["file"], refused["error"]) == (
            f"{live}/nvml.json",
            f"{live}/nvml.json: is cut short: copy it again",
        )
        assert next(line for line in events if "valid again" in line["msg"])["file"] == f"{live}/nvml.json"
        process.terminate()
        assert process.wait(timeout=PROMPTLY) == 0


def wait_for_text(url: str, text: str) -> None:
    """Wait until an HTTP response contains a text."""
    until(lambda: text in fetch(url), lambda: f"{url} has no {text}", every=0.01)


def test_a_live_machine_is_read() -> None:
    with running() as (process, url):
        fetch(f"{url}/readyz")
        text = fetch(f"{url}/metrics")
        assert 'nodeguard_source_last_read_timestamp_seconds{source="clock"}' in text
        process.terminate()
        assert process.wait(timeout=PROMPTLY) == 0


def test_sighup_adopts_new_checks_and_refuses_invalid_ones(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("disable: [clock-unsynchronized]\n")
    with running("--checks", str(tmp_path), "--spread", "1s") as (process, url):
        fetch(f"{url}/readyz")
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        site.write_text("disable: [no-such-check]\n")
        process.send_signal(signal.SIGHUP)
        refused = next(line for line in events if "reload" in line["msg"])
        assert refused["level"] == "error"
        assert f"{site}:1: disable: 'no-such-check' is no check" in refused["error"]
        site.write_text("disable: [clock-unsynchronized, clock-source-unstable]\n")
        process.send_signal(signal.SIGHUP)
        assert next(line for line in events if "reload" in line["msg"])["msg"] == "checks reloaded"


@given(st.text(max_size=40), st.floats(0, 1e4))
def test_each_node_has_its_own_adoption_delay_within_the_spread(node: str, spread: float) -> None:
    assert 0 <= adoption_delay(node, spread) <= spread
    assert adoption_delay(node, spread) == adoption_delay(node, spread)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--listen", "nowhere"], "'nowhere' is not HOST:PORT: write it like 127.0.0.1:9434"),
        (["--listen", "9434"], "'9434' is not HOST:PORT"),
        (["--listen", ":9434"], "':9434' has no host: write 127.0.0.1:9434, or 0.0.0.0:9434 for all"),
        (["--listen", "[]:9434"], "'[]:9434' has no host"),
        (["--listen", "nosuch.invalid:80", *RECORDED], "cannot listen on nosuch.invalid:80: "),
        (["--listen", f"{'a' * 70}:80", *RECORDED], ":80: this is not a host name: name another --listen"),
        (["--listen", "..:80", *RECORDED], "cannot listen on ..:80: this is not a host name"),
        (["--node", "\udcff"], "is not UTF-8: write it again"),
        (["--timeout", "1s"], "unrecognized arguments: --timeout"),
        (["--speed", "0"], "'0' is not a speed: write a number from 0.1 to 1000"),
        (["--speed", "2"], "--speed needs --from: a live machine runs in real time"),
        (["--from", "/nowhere"], "/nowhere"),
        (
            ["--root", "/nowhere"],
            "No such file or directory: --root names the directory that is the machine's root",
        ),
        (["--root", "/", "--from", "/nowhere"], "--root excludes --from"),
        (["--config", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_invalid_options_are_refused(
    options: list[str], error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["agent", *options])
    except SystemExit as exit_call:
        code = int(exit_call.code or 0)
    assert code == 3
    assert error in capfd.readouterr().err


def test_two_agents_do_not_share_a_state_directory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["--from", str(bundle_path("healthy-cpu-only")), "--state", str(tmp_path)]
    with running(*options) as (_, url):
        fetch(f"{url}/readyz")
        assert main(["agent", *options, "--listen", "127.0.0.1:0"]) == 3
    assert f"another agent on this machine uses {tmp_path}" in capfd.readouterr().err


def test_an_address_in_use_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["agent", "--listen", f"127.0.0.1:{port}", "--from", str(bundle_path("gpu-hot"))]) == 3
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in capfd.readouterr().err


def test_an_unknown_platform_names_the_options_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.yaml").write_text("platform: nosuch\n")
    assert main(["agent", "--config", str(tmp_path / "agent.yaml")]) == 3
    assert f"{tmp_path}/agent.yaml: platform 'nosuch' is unknown" in capfd.readouterr().err


def test_a_bundle_without_a_recorded_source_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = (bundle_path("healthy-dgx-h100") / "bundle.yaml").read_text()
    (tmp_path / "bundle.yaml").write_text(manifest + "sources: {kmsg: not-recorded}\n")
    assert main(["agent", "--once", "--from", str(tmp_path)]) == 3
    assert "it records no source: record it again" in capfd.readouterr().err


def test_a_log_without_a_reader_does_not_stop_the_agent() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x")
    os.set_blocking(writer, True)
    listen = free_address()
    command = [sys.executable, "-m", "nodeguard.cli.main", "agent", "--listen", listen, *RECORDED]
    with subprocess.Popen(command, stderr=writer) as process:
        assert fetch(f"http://{listen}/readyz") == "ready\n"
        process.terminate()
        assert process.wait(timeout=PROMPTLY) == 0
    os.close(reader)
    os.close(writer)


def test_once_works_where_no_thread_can_start() -> None:
    code = (
        "import sys, threading; threading.stack_size(1 << 47)\n"
        "from nodeguard.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    options = ["agent", "--once", "--listen", "127.0.0.1:0", *RECORDED]
    ran = subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "Traceback" not in ran.stderr
    assert json.loads(ran.stderr.splitlines()[-1])["msg"] == "agent stopped"


@contextmanager
def agent_with_idle_clients(
    descriptors: int, clients: int
) -> Iterator[tuple[str, Iterable[str], Callable[[], str]]]:
    """Run an agent with a limit on descriptors, and clients that connect and send nothing.

    Yields its URL, the lines of its log, and a function that ends it and returns the rest of the log.
    """
    listen = free_address()
    host, port = listen.split(":")
    command = [
        "sh",
        "-c",
        f'ulimit -n {descriptors}; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "nodeguard.cli.main",
    ]
    with subprocess.Popen(
        [*command, "agent", "--listen", listen, *RECORDED], stderr=subprocess.PIPE, text=True
    ) as process:
        fetch(f"http://{listen}/readyz")
        idle = [socket.create_connection((host, int(port))) for _ in range(clients)]

        def end() -> str:
            process.terminate()
            return process.communicate(timeout=PROMPTLY)[1]

        assert process.stderr is not None
        yield f"http://{listen}", process.stderr, end
        for connection in idle:
            connection.close()


@pytest.mark.slow
def test_idle_clients_do_not_block_other_clients() -> None:
    with agent_with_idle_clients(128, 200) as (url, _, end):
        # Less than the time after which the agent closes idle connections.
        with urlopen(f"{url}/healthz", timeout=4) as response:
            assert response.read() == b"alive\n"
        log = end()
    assert "Traceback" not in log
    assert [line["level"] for line in map(json.loads, log.splitlines())].count("error") <= 1


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1])
def test_an_early_sighup_does_not_end_the_agent(after: float) -> None:
    code = (
        "import os, signal, sys, threading\n"
        "from nodeguard.cli.commands import agent\n"
        "limit_malloc = agent.limit_malloc\n"
        "def hang_up():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGHUP)).start()\n"
        "    limit_malloc()\n"
        "agent.limit_malloc = hang_up\n"
        "from nodeguard.cli.main import main\n"
        "sys.exit(main(sys.argv[2:]))"
    )
    options = ["agent", "--once", "--listen", "127.0.0.1:0", *RECORDED]
    ran = subprocess.run(
        [sys.executable, "-c", code, str(after), *options],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert json.loads(ran.stderr.splitlines()[-1])["msg"] == "agent stopped"


def test_exhausted_descriptors_are_logged_once() -> None:
    with agent_with_idle_clients(20, 40) as (_, lines, end):
        refused = next(line for line in lines if json.loads(line)["level"] == "error")
        log = end()
    assert "too many open files, raise the limit" in refused
    assert "Traceback" not in log
    assert all(json.loads(line) for line in log.splitlines())
    assert "please report it" not in log
