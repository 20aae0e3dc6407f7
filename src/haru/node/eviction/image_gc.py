"""Removing images that nobody uses: those of a disk that fills up, the longest unused first, and very old ones.

Source: the kubelet's garbage collection of images, as documented and as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from haru.client.events import EventType
from haru.kube.meta import Obj
from haru.node.agent.options import ImageGcOptions
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.stats.kubelet import readings
from haru.proto import cri_pb2 as cri

_log = logging.getLogger(__name__)
_SECONDS: Final = 300.0
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image of the runtime, with times of a clock that never jumps; `used` is 0 for one that was never used."""

    first_seen: float
    used: float = 0.0
    size: int = 0
    pinned: bool = False


Records = Mapping[str, ImageRecord]
"""By id."""


def recorded(before: Records, images: Iterable[cri.Image], in_use: Set[str], now: float) -> dict[str, ImageRecord]:
    """What is known of the images that are there now."""
    found = {}
    for image in images:
        known = before.get(image.id, ImageRecord(now))
        used = now if image.id in in_use else known.used
        found[image.id] = replace(known, used=used, size=image.size, pinned=image.pinned)
    return found


def unused(records: Records, in_use: Set[str]) -> list[str]:
    """Ids of those that may go, the longest unused first."""
    free = [id_ for id_, one in records.items() if id_ not in in_use and not one.pinned]
    return sorted(free, key=lambda id_: (records[id_].used, records[id_].first_seen))


def bytes_to_free(options: ImageGcOptions, available: int, capacity: int) -> int:
    """How much must go of a disk; 0 below the high threshold."""
    available = min(available, capacity)
    if 100 - available * 100 // capacity < options.high_percent:
        return 0
    return capacity * (100 - options.low_percent) // 100 - available


def readable(size: int) -> str:
    """A size in the unit that fits it."""
    amount, unit = float(size), "B"
    for larger in _UNITS:
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


class ImageGcError(Exception):
    """Images could not be removed, or too few."""


@dataclass(slots=True)
class ImageCollector:
    """Removes images of one runtime; `pods` are those of the node, `tell` takes events of the node."""

    runtime: RuntimeClient
    options: ImageGcOptions
    pods: Callable[[], Sequence[Obj]]
    tell: Callable[[EventType, str, str], None]
    now: Callable[[], float] = time.monotonic
    _records: dict[str, ImageRecord] = field(default_factory=dict)
    _began: float = 0.0

    async def run(self) -> None:
        """Collect at the interval until cancelled."""
        failed = False
        while not self.options.is_off:
            try:
                await self.collect()
                failed = False
            except (CriError, OSError, ImageGcError) as error:
                _log.warning("images were not collected: %s", error)
                if failed:
                    self.tell("Warning", "ImageGCFailed", str(error))
                failed = True
            except Exception:
                _log.exception("images were not collected")
            await asyncio.sleep(_SECONDS)

    async def collect(self) -> None:
        """Remove what is too old, then what the disk has no room for. Raises `CriError`, `ImageGcError`."""
        now = self.now()
        self._began = self._began or now
        free = await self._unused(now)
        if 0 < self.options.maximum_age < now - self._began:
            old = [one for one in free if now - self._records[one].used > self.options.maximum_age]
            free = [one for one in free if one not in old]
            await self._remove(old)
        directory = await self.runtime.image_directory()
        disk = await asyncio.to_thread(readings.file_system, Path(directory)) if directory else None
        if disk is None or disk.available is None:
            return
        if not disk.capacity:
            self.tell("Warning", "InvalidDiskCapacity", text := "invalid capacity 0 on image filesystem")
            raise ImageGcError(text)
        if wanted := bytes_to_free(self.options, disk.available, disk.capacity):
            freed = await self._free(free, wanted, now)
            if freed < wanted:
                percent = 100 - disk.available * 100 // disk.capacity
                text = _too_little(percent, disk.capacity, freed)
                self.tell("Warning", "FreeDiskSpaceFailed", text)
                raise ImageGcError(text)

    async def remove_unused(self) -> None:
        """Remove all that nobody uses and that is not new. Raises `CriError`, `ImageGcError`."""
        now = self.now()
        await self._free(await self._unused(now), None, now)

    async def _unused(self, now: float) -> list[str]:
        images, containers = await asyncio.gather(self.runtime.images(), self.runtime.containers())
        in_use = {one.image_id or one.image_ref for one in containers}
        # That of sandboxes is pinned by newer runtimes alone.
        names = {await self.runtime.sandbox_image(), *_image_volumes(self.pods())} - {""}
        for name in names:
            if (found := await self.runtime.image(name)) is not None:
                in_use.add(found.id)
        self._records = recorded(self._records, images, in_use, now)
        return unused(self._records, in_use)

    async def _free(self, ids: Sequence[str], wanted: int | None, now: float) -> int:
        """Remove images, oldest first, until so many bytes are freed (None: all); how many were."""
        chosen, freed = [], 0
        for id_ in ids:
            if now - self._records[id_].first_seen < self.options.minimum_age:
                continue
            chosen.append(id_)
            freed += self._records[id_].size
            if wanted is not None and freed >= wanted:
                break
        await self._remove(chosen)
        return freed

    async def _remove(self, ids: Sequence[str]) -> None:
        problems = []
        for id_ in ids:
            _log.info("image %s is removed: %d bytes", id_, self._records[id_].size)
            try:
                await self.runtime.remove_image(id_)
                del self._records[id_]
            except CriError as error:
                problems.append(str(error))
        if problems:
            raise ImageGcError(f"images were not removed: {', '.join(problems)}")


def _image_volumes(pods: Sequence[Obj]) -> set[str]:
    volumes = (volume for pod in pods for volume in pod["spec"].get("volumes") or ())
    return {str(volume["image"].get("reference", "")) for volume in volumes if "image" in volume}


def _too_little(percent: int, capacity: int, freed: int) -> str:
    return (
        f"Insufficient free disk space on the node's image filesystem ({percent}% of {readable(capacity)} used). "
        f"Failed to free sufficient space by deleting unused images (freed {freed} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
