"""Group versions that are custom or aggregated: no peer is asked for them, as every server knows of them by itself.

What a peer has told is not told anew when a definition goes; so its versions stay excluded for a while after.
Source: the exclusion of custom and aggregated APIs from peer discovery in Kubernetes 1.36, as behaviour.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from haru.apiserver.encoding.objects import shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.store_reflector import StoreReflector
from haru.kube import api_services
from haru.storage import Record

GRACE = timedelta(minutes=5)
_GROUP, _PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
GroupVersion = tuple[str, str]


class ExcludedVersions:
    """The group versions of definitions and of remote APIServices, present and recent ones."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._followed = StoreReflector(objects, _GROUP, (_PLURAL,))
        self._services = StoreReflector(objects, api_services.GROUP, (api_services.PLURAL,))
        self._present: set[GroupVersion] = set()
        self._leaving: dict[GroupVersion, datetime] = {}

    async def start(self) -> None:
        """Read definitions and APIServices, and follow them from there."""
        await self._followed.start()
        await self._services.start()
        self._take()

    async def now(self) -> set[GroupVersion]:
        """What is excluded at this moment."""
        if await self._followed.take_in() | await self._services.take_in():
            self._take()
        if self._leaving:
            now = self._objects.clock()
            self._leaving = {version: until for version, until in self._leaving.items() if until > now}
        return self._present | self._leaving.keys()

    def _take(self) -> None:
        present: set[GroupVersion] = set()
        for record in self._followed.of(_PLURAL):
            present |= versions_of(record)
        services = map(shared, self._services.of(api_services.PLURAL))
        present |= {api_services.group_version_of(each) for each in services if api_services.is_remote(each)}
        until = self._objects.clock() + GRACE
        for version in self._present - present:
            self._leaving[version] = until
        self._present = present


def versions_of(record: Record) -> set[GroupVersion]:
    """The group versions that a definition brings."""
    spec = shared(record)["spec"]
    return {(spec["group"], version["name"]) for version in spec.get("versions") or ()}
