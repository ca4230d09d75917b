"""What pyproject.toml cannot express of the package: compiled catalogue, data files, absolute links."""

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from setuptools import Command, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent

# A build imports the package from the source tree, and leaves no files in it.
sys.dont_write_bytecode = True

# Files below the prefix of the installation, and the command that prints each.
PRINTED = {
    "share/man/man1/nodeguard.1": ["man"],
    "share/bash-completion/completions/nodeguard": ["completion", "bash"],
    "share/zsh/site-functions/_nodeguard": ["completion", "zsh"],
    "share/fish/vendor_completions.d/nodeguard.fish": ["completion", "fish"],
}


def compiled(*, working_tree: bool) -> bytes:
    sys.path.insert(0, str(ROOT))
    from nodeguard.catalog.catalogue import compile_catalogue, encode_catalogue, fingerprint
    from nodeguard.config.errors import ConfigError
    from nodeguard.pipeline.signal_registry import all_signals

    folder = ROOT / "checks"
    made_from = fingerprint(folder) if working_tree else ()
    try:
        catalogue = compile_catalogue(folder, all_signals)
    except ConfigError as error:
        raise SystemExit(str(error)) from None
    return encode_catalogue(catalogue, made_from)


def readme() -> str:
    """Return the README with absolute links to the files of this version, for pages of package indexes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    files = f"{project['urls']['Source']}/blob/v{project['version']}"
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({files}/", (ROOT / "README.md").read_text())


def data_files() -> Iterator[tuple[str, list[str]]]:
    """Yield the files of daemonset/ by their directory below the prefix of the installation.

    They are missing where only the package is copied, as in the images.
    """
    for directory in sorted({path.parent for path in (ROOT / "daemonset").rglob("*") if path.is_file()}):
        files = [str(path.relative_to(ROOT)) for path in sorted(directory.iterdir()) if path.is_file()]
        yield f"share/nodeguard/{directory.relative_to(ROOT)}", files


def printed_files() -> Iterator[tuple[str, list[str]]]:
    """Yield the man page and the completion scripts by their directory below the prefix, for a wheel."""
    if "bdist_wheel" not in sys.argv:
        return
    sys.path.insert(0, str(ROOT))
    # The scripts name the checks, and a source tree has them outside of the package until it is installed.
    checks = ModuleType("nodeguard.checks")
    checks.__path__ = [str(ROOT / "checks")]
    sys.modules["nodeguard.checks"] = checks
    from nodeguard.cli.main import main

    for target, arguments in PRINTED.items():
        path = Path("build") / target
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as output, redirect_stdout(output):
            main(arguments)
        yield str(Path(target).parent), [str(path)]


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
    long_description=readme(),
    long_description_content_type="text/markdown",
    data_files=[*data_files(), *printed_files()],
    packages=[*find_packages(include=["nodeguard*"]), "nodeguard.checks"],
    package_dir={"nodeguard": "nodeguard", "nodeguard.checks": "checks"},
    cmdclass={"build_py": BuildPy, "compile_catalogue": CompileCatalogue},
)
