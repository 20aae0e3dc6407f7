"""The condition Dangling: whether the priority level that a FlowSchema refers to exists.

It is applied to the status in the name of 1.36's own consumer of FlowSchemas, after each change of either kind.
Source: the configuration controller of API Priority and Fairness, as behaviour (KEP 1040).
"""

from __future__ import annotations

import asyncio
import logging

from haru.apiserver.aggregation.changes import ObjectChanges
from haru.apiserver.registry.loopback import Loopback
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.storage import StoreError

MANAGER = "api-priority-and-fairness-config-consumer-v1"
SCHEMAS = known_kind("flowcontrol.apiserver.k8s.io/v1", "FlowSchema")
LEVELS = known_kind("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration")
_LOG = logging.getLogger("haru.apiserver")


class FlowSchemaStatus:
    """Keeps the condition of every FlowSchema up to date."""

    def __init__(self, loopback: Loopback) -> None:
        self._loopback, self._objects = loopback, loopback.objects
        self._changes = ObjectChanges(self._objects, *((kind.group, kind.plural) for kind in (SCHEMAS, LEVELS)))
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Write what is missing, and follow what changes."""
        self._changes.start()
        await self._look()

    async def refresh(self) -> None:
        """Follow up what has changed; every request does so before it is routed."""
        if not self._changes.seen() and not self._lock.locked():
            return
        async with self._lock:
            try:
                await self._look()
            except (StoreError, StatusError) as error:
                _LOG.warning("the conditions of FlowSchemas could not be brought up to date: %s", error)

    def stop(self) -> None:
        """Follow no more."""
        self._changes.stop()

    async def _look(self) -> None:
        levels = {each["metadata"]["name"] for each in await self._objects.peek_all(LEVELS.group, LEVELS.plural)}
        for schema in await self._objects.peek_all(SCHEMAS.group, SCHEMAS.plural):
            wanted = dangling(schema, levels)
            known = (schema.get("status") or {}).get("conditions") or ()
            if not any(wanted.items() <= condition.items() for condition in known):
                await self._write(schema, {**wanted, "lastTransitionTime": self._objects.now()})

    async def _write(self, schema: Obj, condition: Obj) -> None:
        named = {
            "apiVersion": SCHEMAS.api_version,
            "kind": SCHEMAS.kind,
            "metadata": {"name": schema["metadata"]["name"]},
        }
        with suppress_status(404):  # gone meanwhile
            await self._loopback.apply({**named, "status": {"conditions": [condition]}}, MANAGER, "status")


def dangling(schema: Obj, levels: set[str]) -> Obj:
    """The condition of a FlowSchema where priority levels of these names exist."""
    name = schema["spec"]["priorityLevelConfiguration"]["name"]
    found = name in levels
    about = f'This FlowSchema references the PriorityLevelConfiguration object named "{name}"'
    return {
        "type": "Dangling",
        "status": "False" if found else "True",
        "reason": "Found" if found else "NotFound",
        "message": f"{about} and it exists" if found else f"{about} but there is no such object",
    }
