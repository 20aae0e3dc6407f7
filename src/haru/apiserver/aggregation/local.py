"""The APIServices of what this server serves itself, as long as it does.

Those of built-in group versions are written once at the start; where several servers share a store, perhaps in the
place of different versions, none removes what another one may serve. Those of custom resources come and go with the
definitions: all servers draw them from the same history, so each does what any other would do.
Source: kube-aggregator's autoregister and crdregistration controllers, as behaviour.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from haru.apiserver.encoding.objects import encode, recent, shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.store_reflector import StoreReflector
from haru.kube.api_services import (
    ALWAYS,
    GROUP,
    LOCAL,
    MANAGED,
    ON_START,
    PLURAL,
    is_remote,
    local_service,
    name_of,
    with_first_status,
)
from haru.kube.custom import definitions
from haru.kube.meta import Obj, get_condition, set_condition
from haru.storage import CompareFailed, Delete, Put, Record


async def register_built_in(objects: ObjectStore) -> None:
    """Write what is absent, all at once; take away what a server alone on its store does not serve any more."""
    there = await _records(objects)
    served = {name_of(*version): version for version in objects.served.group_versions}
    made = (local_service(*version) for name, version in served.items() if name not in there)
    puts = [_put(objects, service) for service in made if service is not None]
    if not objects.store.shared:
        stale = [each for name, each in there.items() if name not in served and _label(each) == ON_START]
        await _write(objects, [Delete(record.key, record.revision) for record in stale])
    await _write(objects, puts)


class CustomServices:
    """Makes the APIServices of custom resources agree with the definitions; it looks at what has changed alone."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._definitions = StoreReflector(objects, definitions.GROUP, (definitions.PLURAL,), self._defined)
        self._services = StoreReflector(objects, GROUP, (PLURAL,), self._registered)
        self._brought: dict[str, frozenset[str]] = {}
        """By definition: the names of the APIServices that its versions have."""
        self._bringing: dict[str, set[str]] = {}
        """The definitions by these names."""
        self._there: dict[str, Record] = {}
        self._changed: set[str] = set()

    async def start(self) -> None:
        """Read definitions and APIServices, and follow them from there."""
        await self._definitions.start()
        await self._services.start()

    async def settle(self) -> None:
        """Write what has to be otherwise since the last call."""
        await self._definitions.take_in()
        await self._services.take_in()
        changed, self._changed = self._changed, set()
        try:
            await _write(self._objects, list(filter(None, map(self._operation, sorted(changed)))))
        except BaseException:
            self._changed |= changed
            raise

    def _defined(self, _: str, old: Record | None, new: Record | None) -> None:
        record = new or old
        assert record is not None
        key, before = record.key, self._brought.pop(record.key, frozenset())
        now = frozenset(() if new is None else _services_of(recent(new)))
        if now:
            self._brought[key] = now
        for name in now - before:
            self._bringing.setdefault(name, set()).add(key)
        for name in before - now:
            self._bringing[name].remove(key)
            if not self._bringing[name]:
                del self._bringing[name]
        self._changed |= before ^ now

    def _registered(self, _: str, old: Record | None, new: Record | None) -> None:
        record = new or old
        assert record is not None
        name = _name(record)
        self._there.pop(name, None)
        if new is not None:
            self._there[name] = new
        self._changed.add(name)

    def _operation(self, name: str) -> Put | Delete | None:
        """What has to be written of an APIService."""
        record = self._there.get(name)
        if name in self._bringing:
            version, _, group = name.partition(".")
            service = local_service(group, version, custom=True)
            assert service is not None
            if record is None:
                return _put(self._objects, service)
            if _label(record) == ALWAYS and shared(record)["spec"] != service["spec"]:
                return _put(self._objects, {**service, "metadata": shared(record)["metadata"]}, record.revision)
        elif record is not None and _label(record) == ALWAYS:
            return Delete(record.key, record.revision)
        if record is None or is_remote(shared(record)) or _is_told_local(shared(record)):
            return None
        return _told_local(self._objects, record)


def _services_of(definition: Obj) -> Iterator[str]:
    """The names of the APIServices of all group versions that a definition brings."""
    spec = definition["spec"]
    if definitions.is_established(definition):
        yield from (name_of(spec["group"], each["name"]) for each in spec["versions"] if each.get("served"))


def _name(record: Record) -> str:
    return record.key.rpartition("/")[2]


async def _records(objects: ObjectStore) -> dict[str, Record]:
    prefix = objects.served.preferred(GROUP, PLURAL).prefix("")
    return {_name(record): record for record in (await objects.store.range(prefix)).records}


def _label(record: Record) -> str:
    return str((shared(record)["metadata"].get("labels") or {}).get(MANAGED) or "")


def _is_told_local(service: Obj) -> bool:
    told = get_condition(service, LOCAL["type"]) or {}
    return all(told.get(name) == value for name, value in LOCAL.items())


def _told_local(objects: ObjectStore, record: Record) -> Put:
    """An APIService that was remote before."""
    service = shared(record)
    conditions = set_condition((service.get("status") or {}).get("conditions"), dict(LOCAL), objects.now())
    value, place = encode({**service, "status": {**(service.get("status") or {}), "conditions": conditions}})
    return Put(record.key, value, record.revision, place)


def _put(objects: ObjectStore, service: Obj, revision: int = 0) -> Put:
    metadata = {"uid": objects.new_uid(), "creationTimestamp": objects.now(), **service["metadata"]}
    value, place = encode(with_first_status({**service, "metadata": metadata}, objects.now()))
    return Put(objects.served.preferred(GROUP, PLURAL).key("", metadata["name"]), value, revision, place)


async def _write(objects: ObjectStore, operations: Sequence[Put | Delete]) -> None:
    """All at once, or one by one where another server is at the same."""
    if not operations:
        return
    try:
        await objects.store.transact(*operations)
    except CompareFailed:
        for operation in operations:
            with contextlib.suppress(CompareFailed):
                await objects.store.transact(operation)
