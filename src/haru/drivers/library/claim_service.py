"""Prepare and unprepare as the DRA service does them: idempotent, written down, one at a time.

The order makes a crash harmless at any point: the claim is noted, the driver does its part, CDI files are written, the
claim is noted as ready; back in the opposite order. Source: KEP-4381.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from haru.client.api import ApiClient
from haru.drivers.cdi.edits import Edits, read_spec
from haru.drivers.cdi.writer import ClaimFiles
from haru.drivers.checkpoint import Checkpoint, CheckpointError
from haru.drivers.library.claims import ClaimBook, ClaimToPrepare, Entry, ReadyDevice
from haru.drivers.library.errors import ClaimChanged, ClaimError, ClaimUnreadable
from haru.drivers.library.metadata import MetadataFiles
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, uid_of
from haru.proto import dra_pb2 as dra

CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
STEP_SECONDS: Final = 40.0
"""How long a driver may take for a claim: the kubelet waits 45 s for the whole call."""
_LOG = logging.getLogger("haru.driver")


class Plugin(Protocol):
    """What a driver's author writes. Both may be called again for the same claim, and after a crash in the middle."""

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        """Make the claim's devices ready: one answer for each. Raises `ClaimError`."""

    async def unprepare(self, claim: Entry) -> None:
        """Undo what `prepare` did, all of it or the part that was done. Raises `ClaimError`."""


@dataclass(frozen=True, slots=True)
class DriverFiles:
    """Where a driver writes checkpoints and CDI files; the versions of its metadata files in containers, if any."""

    data: Path
    cdi: Path
    metadata_versions: Sequence[str] = ()


class Preparer:
    """Prepares claims with a plugin. `load` comes first."""

    def __init__(
        self,
        plugin: Plugin,
        driver: str,
        client: ApiClient,
        files: DriverFiles,
    ) -> None:
        data, cdi, metadata_versions = files.data, files.cdi, files.metadata_versions
        self._plugin = plugin
        self._driver = driver
        self._client = client
        self._book = ClaimBook(Checkpoint(data / "claims.json", f"claims of {driver}"))
        self._files = ClaimFiles(driver, cdi)
        self._metadata = MetadataFiles(driver, data, cdi, metadata_versions) if metadata_versions else None
        self._lock = asyncio.Lock()

    @property
    def metadata(self) -> MetadataFiles | None:
        """The metadata files, if the driver wants them."""
        return self._metadata

    def load(self) -> None:
        """Read the checkpoint and bring the CDI files in line with it. Raises `CheckpointError`, OSError."""
        self._book.load()
        entries = self._book.all()
        for entry in entries:
            self._restore(entry)
        for uid in {*self._files.claims()} - {entry.uid for entry in entries}:
            self._files.remove(uid)

    def entries(self) -> list[Entry]:
        """The claims that are prepared, or were about to be."""
        return self._book.all()

    async def prepare(self, asked: dra.Claim) -> list[dra.Device]:
        """The prepared devices of a claim. Raises `ClaimError`."""
        async with self._lock:
            entry = self._book.get(asked.uid)
            if entry is not None and entry.is_ready:
                with _told():
                    self._restore(entry)
                return _devices_of(entry)
            claim = await self._read(asked)
            entry = Entry(claim.namespace, claim.name, claim.uid)
            with _told():
                self._book.put(entry)
                async with asyncio.timeout(STEP_SECONDS):
                    ready = list(await self._plugin.prepare(claim))
                _check(claim, ready)
                self._book.put(self._written(claim, ready))
            made = self._book.get(asked.uid)
            assert made is not None
            _LOG.info("prepared claim %s/%s (%s)", made.namespace, made.name, made.uid)
            return _devices_of(made)

    async def unprepare(self, asked: dra.Claim) -> None:
        """Unprepare a claim; an unknown one was unprepared before. Raises `ClaimError`."""
        async with self._lock:
            entry = self._book.get(asked.uid)
            if entry is None:
                return
            with _told():
                async with asyncio.timeout(STEP_SECONDS):
                    await self._plugin.unprepare(entry)
                self._files.remove(entry.uid)
                if self._metadata is not None:
                    self._metadata.remove(entry.namespace, entry.name, entry.uid)
                self._book.drop(entry.uid)
            _LOG.info("unprepared claim %s/%s (%s)", entry.namespace, entry.name, entry.uid)

    def _restore(self, entry: Entry) -> None:
        """Write the CDI file again: its directory does not outlive a restart of the machine."""
        if entry.is_ready and entry.cdi:
            self._files.write(entry.uid, _edits_of(entry))

    async def _read(self, asked: dra.Claim) -> ClaimToPrepare:
        where = f"ResourceClaim {asked.namespace}/{asked.name}"
        try:
            found = await self._client.get(CLAIMS, asked.name, asked.namespace)
        except StatusError as error:
            if error.code == 404:
                raise ClaimChanged(f"{where} is not there any more") from None
            raise ClaimUnreadable(f"{where}: {error}") from None
        except (OSError, TimeoutError) as error:
            raise ClaimUnreadable(f"{where}: the API server does not answer: {error}") from None
        if uid_of(found) != asked.uid:
            raise ClaimChanged(f"{where} has the UID {uid_of(found)}, not {asked.uid}: it is another one of that name")
        return ClaimToPrepare.of(found, self._driver)

    def _written(self, claim: ClaimToPrepare, ready: Sequence[ReadyDevice]) -> Entry:
        """The claim's entry once its CDI and metadata files are written."""
        names = _names(ready)
        edits = {name: device.edits for name, device in zip(names, ready, strict=True) if device.edits != Edits()}
        ids = self._files.write(claim.uid, edits) if edits else {}
        described = self._metadata.write(claim, ready) if self._metadata is not None else {}
        devices = []
        for name, device in zip(names, ready, strict=True):
            where = device.allocated
            all_ids = [*([ids[name]] if name in ids else []), *device.cdi_ids]
            if where.base_request in described:
                all_ids.append(described[where.base_request])
            told: Obj = {"requests": [where.base_request], "pool": where.pool, "device": where.device, "ids": all_ids}
            devices.append({**told, "shareID": where.share_id})
        cdi = {name: each.as_spec() for name, each in edits.items()}
        return Entry(claim.namespace, claim.name, claim.uid, True, devices, cdi)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn every failure into a `ClaimError`, so that other claims of the call go on."""
    try:
        yield
    except (ClaimError, asyncio.CancelledError):
        raise
    except TimeoutError:
        raise ClaimError(f"the driver took longer than {STEP_SECONDS:g} s") from None
    except (CheckpointError, OSError) as error:
        raise ClaimError(str(error)) from error
    except Exception as error:
        _LOG.exception("an error of the driver")
        raise ClaimError(f"internal error of the driver: {type(error).__name__}: {error}") from error


def _check(claim: ClaimToPrepare, ready: Sequence[ReadyDevice]) -> None:
    if sorted(_key(device) for device in claim.devices) != sorted(_key(device.allocated) for device in ready):
        raise ClaimError("internal error of the driver: it did not prepare the devices that were allocated")


def _key(device: Any) -> tuple[str, str, str, str]:
    return (device.request, device.pool, device.device, device.share_id)


def _names(ready: Sequence[ReadyDevice]) -> list[str]:
    """A name for each device within the claim; one that was given twice (shares, admin access) gets a number."""
    names: list[str] = []
    for device in ready:
        name, number = device.allocated.device, 1
        while name in names:
            number += 1
            name = f"{device.allocated.device}-{number}"
        names.append(name)
    return names


def _edits_of(entry: Entry) -> dict[str, Edits]:
    """The edits as they were when the claim was prepared."""
    devices = [{"name": name, "containerEdits": spec} for name, spec in entry.cdi.items()]
    content = {"cdiVersion": "0.5.0", "kind": "haru.dev/claim", "devices": devices}
    return dict(read_spec(content, "the checkpoint").devices)


def _devices_of(entry: Entry) -> list[dra.Device]:
    return [
        dra.Device(
            request_names=device["requests"],
            pool_name=device["pool"],
            device_name=device["device"],
            cdi_device_ids=device["ids"],
            share_id=device["shareID"],
        )
        for device in entry.devices
    ]
