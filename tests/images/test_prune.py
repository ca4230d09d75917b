"""The removal of the generated classes of the library kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.image.prune import GENERATED, main


def test_only_generated_modules_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stays, goes = [tmp_path / "kubernetes/client/rest.py"], []
    for directory in GENERATED:
        stays += [
            tmp_path / "kubernetes" / directory / name
            for name in ("__init__.py", "__pycache__/__init__.x.pyc")
        ]
        goes += [
            tmp_path / "kubernetes" / directory / name for name in ("v1_node.py", "__pycache__/v1_node.x.pyc")
        ]
    for path in (*stays, *goes):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1 << 20))
    main(tmp_path)
    assert [path for path in (*stays, *goes) if path.exists()] == stays
    assert capsys.readouterr().out == "removed 8 MiB of generated classes\n"


def test_another_layout_of_the_library_fails_the_build(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has another layout"):
        main(tmp_path)
