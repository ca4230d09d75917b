"""Compiles the catalogue into what is built, so that no start of nodeguard parses YAML."""

import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


def compiled(*, working_tree: bool) -> bytes:
    sys.path.insert(0, str(ROOT))
    from nodeguard.catalog.catalogue import compile_catalogue, encode_catalogue, fingerprint
    from nodeguard.pipeline.signal_registry import all_signals

    folder = ROOT / "checks"
    made_from = fingerprint(folder) if working_tree else ()
    return encode_catalogue(compile_catalogue(folder, all_signals), made_from)


class BuildPy(build_py):
    """Puts the compiled catalogue beside the YAML that it was made from."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "nodeguard" / "checks" / "compiled.msgpack"
            self.mkpath(str(target.parent))
            target.write_bytes(compiled(working_tree=False))


class CompileCatalogue(Command):
    """Compiles the catalogue of a working tree."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        (ROOT / "checks" / "compiled.msgpack").write_bytes(compiled(working_tree=True))


setup(
    packages=[*find_packages(include=["nodeguard*"]), "nodeguard.checks"],
    package_dir={"nodeguard": "nodeguard", "nodeguard.checks": "checks"},
    cmdclass={"build_py": BuildPy, "compile_catalogue": CompileCatalogue},
)
