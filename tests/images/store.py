"""Images for tests, built with buildah in a store of their own, in which layers are cached by content.

The store is `nodeguard/images` in XDG_CACHE_HOME or ~/.cache; in memory, and only for one run, where no overlay works in
this directory: the other driver of buildah copies an image for each step, which takes a quarter of an hour. A build has
no network: its Python packages come from a directory of wheels, and its base is a Debian that debootstrap installs, in
place of the image that the Containerfiles name, which only a registry has. Both are made once, and kept in that
directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts import wheelhouse
from scripts.image.install import MACHINES, elf_machine
from tests.kubelet.disk import ram_disk
from tests.paths import ROOT

AGENT, AGGREGATOR = "nodeguard-agent", "nodeguard-aggregator"
TAG = "0.1.0"

# With the versions of the base in the Containerfiles: Python 3.11, glibc 2.36.
_SUITE = "bookworm"
_PACKAGES = ("busybox-static", "ca-certificates", "python3", "python3-pip", "python3-venv")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SITE_PACKAGES = "opt/nodeguard/lib/python3.11/site-packages"

# For another processor. The buildah of Debian 12 does not set BUILDPLATFORM by itself.
_ARM64 = ("--platform=linux/arm64", "--build-arg=BUILDPLATFORM=linux/amd64")

# The package database of the base for arm64.
_ARM64_PACKAGES = "Package: libc6\nStatus: install ok installed\nArchitecture: arm64\nVersion: 2.36-9\n"

# Files of the base that no image needs.
_UNUSED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeguard" / "images"


def overlay_works(directory: Path) -> bool:
    """Return whether an overlay can be mounted with its layers in a directory. It cannot on another overlay."""
    with tempfile.TemporaryDirectory(dir=directory) as top:
        lower, upper, work, merged = (Path(top) / name for name in ("lower", "upper", "work", "merged"))
        for folder in (lower, upper, work, merged):
            folder.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            return False
        subprocess.run(["umount", str(merged)], check=True)
        return True


@dataclass(frozen=True)
class BuiltImage:
    """An image as it was built. user, labels: of its configuration. added_bytes: beyond its base. files: below its
    site-packages. bill: its bill of materials as a file; embedded_bill: the one in the image.
    """

    user: str
    labels: Mapping[str, str]
    added_bytes: int
    files: frozenset[str]
    bill: str
    embedded_bill: str


@dataclass(frozen=True)
class ForeignImage:
    """An image for another processor. libraries: machine of each shared library, as in its ELF header. has_code:
    whether it has nodeguard. bill: its bill of materials.
    """

    architecture: str
    libraries: Mapping[str, int | None]
    has_code: bool
    bill: str


class ImageStore:
    """The store, for one process at a time: use it inside `locked_store`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def base(self) -> str:
        """Name of the base image."""
        key = hashlib.sha256(repr((_SUITE, _PACKAGES, _UNUSED)).encode()).hexdigest()[:12]
        return f"localhost/nodeguard-tests-base:{key}"

    @property
    def bases(self) -> str:
        """Name of the base for amd64 and arm64. That for arm64 has no program: a build that runs one of it fails."""
        return self.base.replace("-base:", "-bases:")

    @property
    def pause(self) -> str:
        """Name of an image that waits until it is killed."""
        return self.base.replace("-base:", "-pause:")

    def save_pause(self, directory: Path) -> Path:
        """Write an archive of the image that waits, without a build, and return its path."""
        self._ensure_base()
        archive = directory / "pause.tar"
        self.save(self.pause, archive)
        return archive

    def build(self, image: str) -> None:
        """Build an image from its Containerfile. Fails with the end of buildah's output."""
        self._ensure_base()
        # Layers of the first stage stay in the store only while a name leads to them.
        self._build(image, "--target=build", f"--tag=localhost/{image}-build")
        self._build(image, f"--tag={name(image)}")
        # buildah keeps the container of a stage without a step, and prunes no image that a container uses.
        self._run("rm", "--all")
        self._run("rmi", "--prune")

    def build_for_arm64(self, image: str) -> ForeignImage:
        """Build an image for arm64 on this machine, which is another one, and return what it has."""
        self._ensure_base()
        self._ensure_bases()
        built = f"localhost/{image}-arm64"
        self._build(image, *_ARM64, f"--build-arg=BASE={self.bases}", f"--tag={built}")
        architecture = json.loads(self._run("inspect", "--type=image", built))["OCIv1"]["architecture"]
        with self._files(built) as root:
            own = root / "opt/nodeguard"
            libraries = list((root / _SITE_PACKAGES).rglob("*.so"))
            machines = {str(path.relative_to(own)): elf_machine(path) for path in libraries}
            bill = (own / "sbom.cdx.json").read_text()
            return ForeignImage(architecture, machines, (root / _SITE_PACKAGES / "nodeguard").is_dir(), bill)

    def _build(self, image: str, *stage: str) -> None:
        """Build a stage in a network without any interface: nothing is fetched. A later option replaces an earlier."""
        file = ROOT / f"Containerfile.{image.removeprefix('nodeguard-')}"
        context = [f"--build-context=wheelhouse={self._wheels()}", "--build-arg=PIP_NO_INDEX=1"]
        options = [
            "--isolation=chroot",
            "--network=host",
            "--pull-never",
            "--layers",
            f"--build-arg=BASE={self.base}",
        ]
        ignored = f"--ignorefile={ROOT / '.dockerignore'}"
        command = [*options, *context, ignored, f"--file={file}", *stage, str(ROOT)]
        self._run("build", *command, prefix=("unshare", "--net"))

    def inspect(self, image: str) -> BuiltImage:
        """Return what an image has."""
        config = json.loads(self._run("inspect", "--type=image", name(image)))["OCIv1"]["config"]
        with tempfile.TemporaryDirectory() as directory, self._files(name(image)) as root:
            self._build(image, "--target=sbom", f"--output={directory}")
            [bill] = Path(directory).iterdir()
            packages = root / _SITE_PACKAGES
            files = frozenset(
                str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()
            )
            embedded = (root / "opt/nodeguard/sbom.cdx.json").read_text()
            return BuiltImage(
                config["User"],
                config["Labels"],
                self._size(name(image)) - self._size(self.base),
                files,
                bill.read_text(),
                embedded,
            )

    def _size(self, image: str) -> int:
        (found,) = json.loads(self._run("images", "--json", image))
        value, unit = found["size"].split()
        return round(float(value) * {"KB": 10**3, "MB": 10**6, "GB": 10**9}[unit])

    def save(self, image: str, archive: Path) -> None:
        """Write an image as an archive that `ctr images import` reads."""
        self._run("push", "--quiet", image, f"docker-archive:{archive}:{image}")

    @contextmanager
    def _files(self, image: str) -> Iterator[Path]:
        """Yield the root directory of an image."""
        container = self._run("from", "--pull-never", image).strip()
        try:
            yield Path(self._run("mount", container).strip())
        finally:
            self._run("rm", container)

    def _ensure_base(self) -> None:
        if self.base in self._run("images", "--format={{.Name}}:{{.Tag}}").split():
            return
        # A colon would end the path of an archive.
        names = {image: image.rpartition("/")[2].replace(":", "-") for image in (self.base, self.pause)}
        archives = {image: cache() / f"{file}.tar" for image, file in names.items()}
        if not all(archive.is_file() for archive in archives.values()):
            self._install_base()
            for old in cache().glob("nodeguard-tests-*.tar"):
                old.unlink()
            for image, archive in archives.items():
                partial = archive.with_suffix(".partial")
                partial.unlink(missing_ok=True)
                self.save(image, partial)
                partial.rename(archive)
            return
        for image, archive in archives.items():
            self._run("pull", "--quiet", f"docker-archive:{archive}:{image}")

    def _ensure_bases(self) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as temporary:
            status = Path(temporary) / "var/lib/dpkg/status"
            status.parent.mkdir(parents=True)
            status.write_text(_ARM64_PACKAGES)
            other = f"{self.base}-arm64"
            self._commit(other, Path(temporary), "--arch=arm64")
        if self.bases in self._run("images", "--format={{.Name}}:{{.Tag}}").split():
            self._run("manifest", "rm", self.bases)
        self._run("manifest", "create", self.bases)
        for part in (self._run("images", "--no-trunc", "--quiet", self.base).strip(), other):
            self._run("manifest", "add", self.bases, part)

    def _install_base(self) -> None:
        with tempfile.TemporaryDirectory(dir=self._directory) as temporary:
            tree = Path(temporary) / "base"
            _print("installing the Debian of the tests' images, once: 1 to 2 minutes")
            _debootstrap(tree)
            busybox = Path(temporary) / "pause"
            busybox.mkdir()
            shutil.copy(tree / "usr/bin/busybox", busybox)
            self._commit(self.pause, busybox, "--entrypoint", '["/busybox", "sleep", "2147483647"]')
            self._commit(self.base, tree, f"--env=PATH={_PATH}")

    def _commit(self, image: str, tree: Path, *settings: str) -> None:
        container = self._run("from", "scratch").strip()
        self._run("copy", "--quiet", container, str(tree), "/")
        self._run("config", *settings, container)
        self._run("commit", "--quiet", "--rm", container, image)

    def _wheels(self) -> Path:
        """Return the directory of wheels for the current requirements."""
        sources = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "scripts/wheelhouse.py")]
        key = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        target = cache() / f"wheels-{key}"
        if not target.is_dir():
            _print("fetching the Python packages of the images, once")
            for old in cache().glob("wheels-*"):
                shutil.rmtree(old)
            partial = cache() / "wheels-partial"
            for machine in MACHINES.values():
                wheelhouse.download(partial, machine)
            partial.rename(target)
        return target

    def _run(self, *arguments: str, prefix: tuple[str, ...] = ()) -> str:
        store = self._directory / "store"
        options = [f"--root={store}", f"--runroot={store / 'run'}", "--storage-driver=overlay"]
        command = [*prefix, "buildah", *options, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-6000:]}")
        return done.stdout


def name(image: str) -> str:
    """Return the full name of an image, as containerd completes that of the manifests."""
    return f"docker.io/library/{image}:{TAG}"


@contextmanager
def locked_store() -> Iterator[ImageStore]:
    """Open the store. Other processes wait meanwhile."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if overlay_works(cache()):
            yield ImageStore(cache())
        else:
            with ram_disk() as directory:
                yield ImageStore(directory)


def _debootstrap(tree: Path) -> None:
    packages = f"--include={','.join(_PACKAGES)}"
    command = ["debootstrap", "--variant=minbase", packages, _SUITE, str(tree), *_mirror()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-3000:]}"
    (tree / "usr/bin/python").symlink_to("python3")
    for unused in _UNUSED:
        shutil.rmtree(tree / unused)


def _mirror() -> list[str]:
    """Return the mirror that this machine uses for Debian; nothing if it uses none, for that of debootstrap."""
    apt = Path("/etc/apt")
    texts = [
        path.read_text()
        for path in (*apt.glob("sources.list"), *apt.glob("sources.list.d/*"))
        if path.is_file()
    ]
    words = (word for text in texts for word in text.split())
    return [word for word in words if "://" in word and word.rstrip("/").endswith("/debian")][:1]


def _print(text: str) -> None:
    print(f"images: {text}", file=sys.stderr, flush=True)
