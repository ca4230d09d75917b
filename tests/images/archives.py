"""The images as archives, which a container runtime imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.images.store import AGENT, AGGREGATOR, BuiltImage, ImageStore, name


@dataclass(frozen=True)
class Archives:
    """images: what each has. files: archives of all images. pause: name of the image that only waits."""

    images: Mapping[str, BuiltImage]
    files: Sequence[Path]
    pause: str


def build_archives(store: ImageStore, directory: Path) -> Archives:
    """Build the images, and write an archive of each to a directory."""
    names = {image: name(image) for image in (AGENT, AGGREGATOR)}
    for image in names:
        store.build(image)
    files = []
    for image, full_name in {**names, "pause": store.pause}.items():
        files.append(directory / f"{image}.tar")
        store.save(full_name, files[-1])
    return Archives({image: store.inspect(image) for image in names}, files, store.pause)
