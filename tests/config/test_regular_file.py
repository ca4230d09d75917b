"""Each file that a configuration names: a pipe, a directory or a device in its place is an error, at once."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeguard.agent.reporting.credentials import CertificateFiles, TokenFile, tls_context
from nodeguard.aggregator.backends.standalone_state import read_state
from nodeguard.aggregator.certificates.file_store import FileStore
from nodeguard.aggregator.certificates.serving_certificate import read_pem
from nodeguard.aggregator.history.file import open_for_reading, open_for_writing
from nodeguard.config.errors import ConfigError
from nodeguard.config.regular_file import read_regular_file
from nodeguard.config.yaml_document import load_yaml
from nodeguard.kube.credentials import file_content
from nodeguard.kube.kubeconfig import load_kubeconfig
from nodeguard.local.client_tls import client_context

READERS: dict[str, Callable[[str], object]] = {
    "any": lambda path: read_regular_file(path, 10),
    "YAML": lambda path: load_yaml(Path(path)),
    "token": lambda path: TokenFile(path).token(),
    "CA of the aggregator": tls_context,
    "certificate of the agent": lambda path: tls_context(None, CertificateFiles(path, path)),
    "CA": client_context,
    "certificate": read_pem,
    "authority": lambda path: asyncio.run(FileStore(path, 0o600).read()),
    "state": read_state,
    "history": open_for_reading,
    "new history": open_for_writing,
    "credentials of a pod": file_content,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_another_kind_of_file_is_an_error(name: str, make: Callable[[str], object], tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    make(path)
    with pytest.raises(
        Exception, match=r"not a regular file|[Ii]s a directory|unable to open|a pipe without"
    ):
        READERS[name](path)


def test_a_file_is_read_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular_file(tmp_path / "file", 4) == b"0123"
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "other", 4)


def test_a_named_pipe_is_not_read(tmp_path: Path) -> None:
    """A read would wait for the writer, and the loop of the aggregator with it after a change of the policy."""
    path = tmp_path / "policy.yaml"
    os.mkfifo(path)
    ends = [os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_WRONLY)]
    os.write(ends[1], b"a: 1\n")
    os.close(ends.pop())
    with pytest.raises(
        ConfigError,
        match=r"policy\.yaml: cannot be read: a named pipe, not a regular file: name a regular file",
    ):
        load_yaml(path)
    os.close(ends.pop())


def test_a_pipe_without_data_is_no_empty_file() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(
        ConfigError,
        match=r"cannot be read: a pipe without a writer, or without data: check the command that writes",
    ):
        load_yaml(Path(f"/dev/fd/{reading}"))
    os.close(reading)


def test_yaml_is_read_from_a_pipe_with_a_writer() -> None:
    """A shell passes the output of a command in this way."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "w") as file:
            file.write("a: 1\n")

    writer = threading.Thread(target=write)
    writer.start()
    assert load_yaml(Path(f"/dev/fd/{reading}")).data == {"a": 1}
    writer.join()
    os.close(reading)


def test_a_named_pipe_is_no_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "config"
    os.mkfifo(path)
    with pytest.raises(OSError, match="a named pipe, not a regular file"):
        asyncio.run(load_kubeconfig(f"{tmp_path}/missing:{path}"))


def test_a_name_with_a_null_character_is_an_error() -> None:
    with pytest.raises(OSError, match="its name has a null character"):
        read_regular_file("a\0b", 1)
