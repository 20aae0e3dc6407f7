"""A client whose API server is a dict: what simulated kubelets and drivers need of the API, nothing more."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from haru.client.api import ApiClient
from haru.drivers.simulated.profiles import Profile, load_profile
from haru.embedded.options import parse_profiles
from haru.kube import schema
from haru.kube.errors import StatusError, already_exists_error, conflict_error, not_found_error
from haru.kube.kinds import Kind
from haru.kube.meta import labels_of
from haru.kube.patch.merge_patch import apply_merge_patch
from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.selectors import parse_field_selector, parse_label_selector

Obj = dict[str, Any]


def named(text: str) -> list[tuple[Profile, str]]:
    """The nodes of `haru up --profile TEXT`."""
    return [
        (load_profile(entry.profile), f"{entry.profile}-{number}")
        for entry in parse_profiles(text)
        for number in range(entry.count)
    ]


class InMemoryClient(ApiClient):
    """Stores objects by (plural, namespace, name); `writes` tells what was asked for."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Obj] = {}
        self.revision = 0
        self.history: list[tuple[str, str, Obj]] = []
        self.changed = asyncio.Event()
        self.writes: list[tuple[str, str, str]] = []
        self.faults: dict[tuple[str, str], list[Exception]] = {}
        self.namespaces = {"default", "kube-node-lease"}

    def metadata_only(self) -> ApiClient:
        return self  # whoever needs only metadata is not hurt by more

    def hasty(self, timeout: float) -> ApiClient:
        return self

    def fail(self, verb: str, plural: str, error: Exception) -> None:
        """The next such request fails: a write, or a get."""
        self.faults.setdefault((verb, plural), []).append(error)

    def _begin(self, verb: str, kind: Kind, name: str) -> None:
        self.writes.append((verb, kind.plural, name))
        self._fail_as_told(verb, kind)

    def _fail_as_told(self, verb: str, kind: Kind) -> None:
        faults = self.faults.get((verb, kind.plural))
        if faults:
            raise faults.pop(0)

    def _stored(self, kind: Kind, name: str, namespace: str) -> Obj:
        found = self.objects.get((kind.plural, namespace if kind.namespaced else "", name))
        if found is None:
            raise not_found_error(kind.group, kind.plural, name)
        return found

    def _store(self, type_: str, kind: Kind, obj: Obj) -> Obj:
        self.revision += 1
        meta = {**obj["metadata"], "resourceVersion": str(self.revision)}
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(obj), "metadata": meta}
        key = (kind.plural, meta.get("namespace", ""), meta["name"])
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = obj
        self.history.append((type_, kind.plural, obj))
        self.changed.set()
        self.changed = asyncio.Event()
        return copy.deepcopy(obj)

    async def get(self, kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Obj:
        self._fail_as_told("get", kind)
        return copy.deepcopy(self._stored(kind, name, namespace))

    async def list(self, kind: Kind, namespace: str = "", label_selector: str = "", field_selector: str = "", limit: int = 0, resource_version: str = "") -> Obj:  # fmt: skip # noqa: E501
        selector = parse_field_selector(field_selector)
        labels = parse_label_selector(label_selector)
        items = [
            found
            for (plural, within, _), found in self.objects.items()
            if plural == kind.plural
            and namespace in ("", within)
            and selector.matches(kind, found)
            and labels.matches(labels_of(found))
        ]
        return {"metadata": {"resourceVersion": str(self.revision)}, "items": copy.deepcopy(items)}

    async def pages(self, kind: Kind, *selection: Any, shared: bool = False) -> AsyncGenerator[tuple[Obj, bool], None]:
        yield await self.list(kind, *selection), True

    async def watch(self, kind: Kind, namespace: str = "", resource_version: str = "", label_selector: str = "", field_selector: str = "", bookmarks: bool = True, timeout_seconds: int = 0, opened: Any = lambda: None, shared: bool = False, is_known: Any = None, managed_fields: bool = True) -> AsyncIterator[tuple[str, Obj]]:  # type: ignore[override] # fmt: skip # noqa: E501
        selector = parse_field_selector(field_selector)
        labels = parse_label_selector(label_selector)
        opened()
        since = int(resource_version)
        position = 0
        while True:
            changed = self.changed
            while position < len(self.history):
                type_, plural, obj = self.history[position]
                position += 1
                newer = int(obj["metadata"]["resourceVersion"]) > since
                if plural == kind.plural and newer and selector.matches(kind, obj) and labels.matches(labels_of(obj)):
                    yield type_, copy.deepcopy(obj)
            await changed.wait()

    async def create(self, kind: Kind, obj: Obj, namespace: str = "", dry_run: bool = False, field_manager: str = "") -> Obj:  # fmt: skip # noqa: E501
        meta = dict(obj["metadata"])
        if kind.namespaced:
            meta.setdefault("namespace", namespace or "default")
        self._begin("create", kind, meta["name"])
        if kind.plural == "namespaces":
            self.namespaces.add(meta["name"])
        if kind.namespaced and meta["namespace"] not in self.namespaces:
            raise not_found_error("", "namespaces", meta["namespace"])
        if (kind.plural, meta.get("namespace", ""), meta["name"]) in self.objects:
            raise already_exists_error(kind.group, kind.plural, meta["name"])
        meta["uid"] = f"uid-{self.revision + 1}"
        return self._store("ADDED", kind, {**obj, "metadata": meta})

    async def update(self, kind: Kind, obj: Obj, subresource: str = "", field_manager: str = "") -> Obj:
        meta = obj["metadata"]
        self._begin("update", kind, meta["name"])
        stored = self._stored(kind, meta["name"], meta.get("namespace", ""))
        if meta.get("resourceVersion") not in (None, stored["metadata"]["resourceVersion"]):
            raise conflict_error(kind.group, kind.plural, meta["name"])
        return self._store("MODIFIED", kind, obj)

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", type: str = "merge", subresource: str = "", field_manager: str = "", force: bool = False, dry_run: bool = False) -> Obj:  # fmt: skip # noqa: E501
        self._begin("patch", kind, name)
        stored = self._stored(kind, name, namespace)
        if (patch.get("metadata") or {}).get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            raise conflict_error(kind.group, kind.plural, name, "Precondition failed: UID in precondition")
        if type == "strategic":
            patched = apply_strategic_merge_patch(stored, patch, schema.type_of(kind))
        else:
            patched = apply_merge_patch(stored, patch)
        return self._store("MODIFIED", kind, patched)

    async def delete(self, kind: Kind, name: str, namespace: str = "", uid: str = "", resource_version: str = "", grace_period_seconds: int | None = None, propagation_policy: str = "") -> Obj:  # fmt: skip # noqa: E501
        self._begin("delete", kind, name)
        stored = self._stored(kind, name, namespace)
        if uid and stored["metadata"]["uid"] != uid:
            raise conflict_error(kind.group, kind.plural, name)
        graceful = kind.plural == "pods" and grace_period_seconds != 0
        if graceful or stored["metadata"].get("finalizers"):
            grace = 30 if graceful else 0
            marks = {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": grace}
            return self._store("MODIFIED", kind, {**stored, "metadata": {**stored["metadata"], **marks}})
        self._store("DELETED", kind, stored)
        return {"kind": "Status", "status": "Success"}

    # -- for the tests ------------------------------------------------------------------------------------------------

    async def until(self, condition: Any, seconds: float = 60.0) -> Any:
        """Wait until `condition()` holds (or answers an object) after some write."""
        async with asyncio.timeout(seconds):
            while True:
                changed = self.changed
                try:
                    if found := condition():
                        return found
                except (KeyError, StatusError):
                    pass
                try:
                    await asyncio.wait_for(changed.wait(), 0.02)
                except TimeoutError:
                    continue
