"""IPAddresses of Services: written with the Service in one transaction.

Source: KEP 1880; kube-apiserver's allocator of cluster IPs, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from haru.apiserver.encoding.objects import encode, noted, shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.resources import Resource
from haru.apiserver.request.call import Call
from haru.kube.json_form import json_form
from haru.kube.meta import Obj
from haru.kube.patch.apply import ManagedWrite, track_update
from haru.kube.service_networks import addresses_of, ip_address_of, service_of
from haru.storage import Delete, Put, Record

MANAGER = "kube-apiserver"


def ip_addresses(objects: ObjectStore) -> Resource | None:
    """The resource; None where it is not served."""
    return objects.served.find("networking.k8s.io", "ipaddresses")


async def with_ip_addresses(call: Call, old: Obj | None, new: Obj | None) -> Sequence[Put | Delete]:
    """What is written with a version of a Service: the IPAddresses that it gets, and loses."""
    objects = call.objects
    resource = ip_addresses(objects)
    if resource is None:
        return ()
    had, has = addresses_of(old), addresses_of(new)
    writes: list[Put | Delete] = [_put(objects, resource, text, new) for text in sorted(has - had) if new is not None]
    for text in sorted(had - has):
        record = await objects.record(resource, "", text)
        if record is not None and old is not None and service_of(shared(record)) == _name_of(old):
            writes.append(_removal(record, objects.now()))
    return writes


def _name_of(service: Obj) -> tuple[str, str]:
    return service["metadata"]["namespace"], service["metadata"]["name"]


def _put(objects: ObjectStore, resource: Resource, text: str, service: Obj) -> Put:
    kind, obj = resource.stored, ip_address_of(text, service)
    obj["metadata"] |= {"uid": objects.new_uid(), "creationTimestamp": objects.now()}
    write = ManagedWrite(MANAGER, kind.api_version, resource.message_type, "", objects.now())
    obj = json_form(track_update(None, obj, write), kind)
    return _written(resource.key("", text), obj, 0)


def _removal(record: Record, now: str) -> Put | Delete:
    """One that has finalizers is marked, and goes when the last of them does."""
    obj = shared(record)
    metadata = obj["metadata"]
    if not metadata.get("finalizers"):
        return Delete(record.key, record.revision)
    marks = {"deletionTimestamp": metadata.get("deletionTimestamp") or now, "deletionGracePeriodSeconds": 0}
    return _written(record.key, {**obj, "metadata": {**metadata, **marks}}, record.revision)


def _written(key: str, obj: Obj, expected: int) -> Put:
    value, place = encode(obj)
    return Put(key, value, expected, place, note=partial(noted, obj, len(value), None))
