"""Removal of the ResourceSlices of drivers that left this node.

A driver has 30 s to come (back); slices that are not of this node are left alone. Source: kubelet `cm/dra/plugin`, as
behaviour; where it deletes all slices of its node at a start, those of drivers that come stay (docs/differences.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from haru.client.api import ApiClient
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import name_of, uid_of

SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
GRACE_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0
_LOG = logging.getLogger("haru.node.dra")


class SliceCleaner:
    """Hand `changed` to the registry; `connected()` names the drivers that can be reached."""

    def __init__(
        self, client: ApiClient, node_name: str, connected: Callable[[], set[str]], grace_seconds: float = GRACE_SECONDS
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._connected = connected
        self._grace = grace_seconds
        self._due: dict[str, float] = {}
        self._wake = asyncio.Event()

    def changed(self, driver: str) -> None:
        """A driver came or went."""
        if driver in self._connected():
            self._due.pop(driver, None)
        else:
            self._due.setdefault(driver, asyncio.get_running_loop().time() + self._grace)
        self._wake.set()

    async def run(self) -> None:
        """Clean until cancelled; first what drivers left that do not come at all."""
        loop = asyncio.get_running_loop()
        self._due.setdefault("", loop.time() + self._grace)
        while True:
            now = loop.time()
            for driver in [driver for driver, due in self._due.items() if due <= now]:
                del self._due[driver]
                try:
                    await self._clean(driver)
                except (StatusError, OSError, TimeoutError) as error:
                    _LOG.warning("slices of %s could not be removed: %s", driver or "absent drivers", error)
                    self._due.setdefault(driver, loop.time() + RETRY_SECONDS)
            waiting = min(self._due.values(), default=None)
            self._wake.clear()
            try:
                async with asyncio.timeout(None if waiting is None else max(0.0, waiting - loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _clean(self, driver: str) -> None:
        """Delete the slices of a driver (empty: of all that are not here) on this node, unless it has come."""
        selector = f"spec.nodeName={self._node_name}"
        if driver:
            selector += f",spec.driver={driver}"
        for obj in (await self._client.list(SLICES, field_selector=selector))["items"]:
            if obj["spec"]["driver"] in self._connected() or obj["spec"]["driver"] in self._due:
                continue
            with suppress_status(404, 409):
                await self._client.delete(SLICES, name_of(obj), uid=uid_of(obj))
                _LOG.info("removed ResourceSlice %s: its driver is gone", name_of(obj))
