"""Objects of a cluster by whatever a test calls their kind: `Pod`, `pods`, `po`, `apps/v1/Deployment`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.client.api import ApiClient
from haru.client.discovery import served_kinds
from haru.kube.errors import suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

FIELD_MANAGER = "haru.testing"


class Objects:
    """The operations on objects; kinds come from the server's discovery, again for an unknown one."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._kinds: dict[tuple[str, str], Kind] = {}

    async def apply(self, obj: Obj, namespace: str) -> Obj:
        """Server-side apply, by force; the object afterwards. `namespace` is for one that names none."""
        kind = await self._kind(f"{obj.get('apiVersion', '')}/{obj.get('kind', '')}")
        metadata: Mapping[str, Any] = obj.get("metadata") or {}
        place = str(metadata.get("namespace") or namespace) if kind.namespaced else ""
        return await self._client.patch(
            kind, str(metadata["name"]), obj, place, type="apply", field_manager=FIELD_MANAGER, force=True
        )

    async def get(self, kind: str, name: str, namespace: str) -> Obj | None:
        """An object; None if there is none."""
        found = await self._kind(kind)
        with suppress_status(404):
            return await self._client.get(found, name, namespace if found.namespaced else "")
        return None

    async def list(self, kind: str, namespace: str, labels: str, fields: str) -> list[Obj]:
        """Those that the selectors choose."""
        found = await self._kind(kind)
        answer = await self._client.list(
            found, namespace if found.namespaced else "", label_selector=labels, field_selector=fields
        )
        items: list[Obj] = answer["items"]
        return items

    async def patch(self, kind: str, name: str, patch: Obj, namespace: str, subresource: str) -> Obj:
        """A merge patch; the object afterwards."""
        found = await self._kind(kind)
        return await self._client.patch(
            found, name, patch, namespace if found.namespaced else "", subresource=subresource
        )

    async def delete(self, kind: str, name: str, namespace: str) -> None:
        """Begin to delete it."""
        found = await self._kind(kind)
        await self._client.delete(found, name, namespace if found.namespaced else "")

    async def _kind(self, name: str) -> Kind:
        """The served kind that a name stands for, asked for again where it is not known yet."""
        version, _, word = name.rpartition("/")
        for attempt in range(2):
            for kind in self._kinds.values():
                words = (kind.kind.lower(), kind.plural, kind.singular, *kind.short_names, kind.group_resource)
                if word.lower() in words and version in ("", kind.api_version):
                    return kind
            if not attempt:
                for kind in await served_kinds(self._client):
                    self._kinds.setdefault((kind.group, kind.kind), kind)
        raise LookupError(f"the cluster serves no {name!r}; write a kind, a plural, or group/version/Kind")
