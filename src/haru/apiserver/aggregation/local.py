"""The APIServices of what this server serves itself, as long as it does.

Those of built-in group versions are written once at the start; where several servers share a store, perhaps in the
place of different versions, none removes what another one may serve. Those of custom resources come and go with the
definitions: all servers draw them from the same history, so each does what any other would do.
Source: kube-aggregator's autoregister and crdregistration controllers, as behaviour.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from haru.apiserver.encoding.objects import encode, shared
from haru.apiserver.object_store import ObjectStore
from haru.kube.api_services import (
    ALWAYS,
    GROUP,
    LOCAL,
    MANAGED,
    ON_START,
    PLURAL,
    GroupVersion,
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


async def register_custom(objects: ObjectStore) -> None:
    """Make the APIServices of custom resources agree with the definitions."""
    there = await _records(objects)
    wanted = {name_of(*version): version for version in custom_versions(await _definitions(objects))}
    operations: list[Put | Delete] = []
    for name, version in wanted.items():
        service = local_service(*version, custom=True)
        assert service is not None
        record = there.get(name)
        if record is None:
            operations.append(_put(objects, service))
        elif _label(record) == ALWAYS and shared(record)["spec"] != service["spec"]:
            operations.append(_put(objects, {**service, "metadata": shared(record)["metadata"]}, record.revision))
    for name, record in there.items():
        if name not in wanted and _label(record) == ALWAYS:
            operations.append(Delete(record.key, record.revision))
        elif not is_remote(shared(record)) and not _is_told_local(shared(record)):
            operations.append(_told_local(objects, record))
    await _write(objects, operations)


def custom_versions(found: Iterable[Obj]) -> list[GroupVersion]:
    """The group versions that definitions bring."""
    versions: dict[GroupVersion, None] = {}
    for definition in found:
        spec = definition["spec"]
        if definitions.is_established(definition):
            versions |= {(spec["group"], each["name"]): None for each in spec["versions"] if each.get("served")}
    return list(versions)


async def _records(objects: ObjectStore) -> dict[str, Record]:
    prefix = objects.served.preferred(GROUP, PLURAL).prefix("")
    return {record.key.removeprefix(prefix): record for record in (await objects.store.range(prefix)).records}


async def _definitions(objects: ObjectStore) -> list[Obj]:
    return await objects.peek_all(definitions.GROUP, definitions.PLURAL)


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
