"""Stored records to the bytes of an answer: as they are, in another version, as a Table, as metadata only, as YAML."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from haru.apiserver.encoding.negotiation import (
    PARTIAL,
    PARTIAL_PROTOBUF,
    PLAIN,
    Representation,
    negotiate,
    not_of_that_shape,
)
from haru.apiserver.encoding.objects import decode, partial_bytes, recent
from haru.apiserver.registry.resources import Resource
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Request, Response
from haru.kube import yaml
from haru.kube.json_form import served
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.serving import OBJECT
from haru.storage import Record

_HEAD_BYTES = 512


def representation_of(request: Request) -> Representation:
    """The representation that the Accept header selects."""
    return negotiate(request.header(b"accept"))


def versioned(record: Record, resource: Resource) -> Obj:
    """The record's object in the served version."""
    return served(decode(record), resource.kind)


def object_bytes(record: Record, resource: Resource) -> bytes:
    """The record's object as JSON in the served version."""
    if resource.kind is resource.stored and (resource.kind.custom is None or _is_current(record, resource)):
        return record.value
    return orjson.dumps(versioned(record, resource))


def item_bytes(record: Record, resource: Resource) -> bytes:
    """The same as an item of a list: of what kind it is, the list says, but for custom resources."""
    kind = resource.kind
    if kind.custom is not None:
        return object_bytes(record, resource)
    if kind is not resource.stored:
        return orjson.dumps(item(versioned(record, resource)))
    head = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
    return b"{" + record.value.removeprefix(head) if record.value.startswith(head) else record.value


def item(obj: Obj) -> Obj:
    """An object without what a list says of all its items."""
    return {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}


def _is_current(record: Record, resource: Resource) -> bool:
    """Whether a custom resource lies in the store in today's version: which one that is may be changed by its owner."""
    return record.head(_HEAD_BYTES).startswith(b'{"apiVersion":"%b",' % resource.kind.api_version.encode())


def partial(obj: Obj, version: str = "v1") -> Obj:
    """PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


def include_object(request: Request) -> str:
    """The `includeObject` parameter of table requests."""
    return request.param("includeObject") or "Metadata"


def is_prepared(call: Call) -> bool:
    """Whether a list is to be a Table whose rows may lie ready: the one that kubectl asks for."""
    from haru.kube import printers

    wanted = representation_of(call.request)
    is_usual = wanted.shape == "table" and wanted.version == "v1" and not wanted.yaml
    return is_usual and include_object(call.request) == "Metadata" and printers.is_prepared(call.resource.kind)


def table_of(call: Call, objs: Sequence[Obj], metadata: Obj) -> Obj:
    """A Table of objects in the served version."""
    from haru.kube import printers

    wanted = include_object(call.request)
    found = printers.table(
        call.resource.kind, objs, call.objects.clock(), include_object=wanted, list_metadata=metadata
    )
    version = representation_of(call.request).version
    if version != "v1":
        found["apiVersion"] = f"meta.k8s.io/{version}"
        for row in found["rows"]:
            if wanted == "Metadata":
                row["object"]["apiVersion"] = found["apiVersion"]
    return found


def render_object(call: Call, record: Record | None, obj: Obj | None = None, status: int = 200) -> Response:
    """One object as the client wants it; `record` in the stored version or `obj` in the served one."""
    request, resource = call.request, call.resource
    representation = representation_of(request)
    if resource.kind.virtual:  # which has no rows
        representation = negotiate(request.header(b"accept"), False)
    if representation.listed:
        raise not_of_that_shape("PartialObjectMetadataList", "not a list", resource.kind, resource.kind.kind)
    if representation is PLAIN:
        if record is not None and resource.kind.custom is None and OBJECT in (request.scope.get("extensions") or ()):
            return Response(status, obj=served(recent(record), resource.kind))
        body = object_bytes(record, resource) if record is not None else orjson.dumps(obj)
        return Response(status, body)
    if representation in (PARTIAL, PARTIAL_PROTOBUF) and record is not None:
        return Response(status, partial_bytes(record))
    if obj is None:
        assert record is not None
        obj = versioned(record, resource)
    if representation.shape == "table" and status < 300:
        metadata = {name: obj["metadata"][name] for name in ("resourceVersion",) if name in obj["metadata"]}
        obj = table_of(call, [obj], metadata)
    elif representation.shape == "partial":
        obj = partial(obj, representation.version)
    return render_plain(representation, obj, status)


def check_list_shape(call: Call) -> None:
    """406 where a client wants a list as if it were one object."""
    representation, kind = representation_of(call.request), call.resource.kind
    if representation.shape == "partial" and not representation.listed:
        raise not_of_that_shape("PartialObjectMetadata", "a list", kind, kind.list_kind)


def render_list(call: Call, objs: Sequence[Obj], metadata: Obj) -> Response:
    """A list of objects in the served version, as the client wants it; `check_list_shape` comes before."""
    representation, kind = representation_of(call.request), call.resource.kind
    if representation.shape == "table":
        return render_plain(representation, table_of(call, objs, metadata))
    if representation.shape == "partial":
        version = representation.version
        parts = [partial(obj, version) for obj in objs]
        name, version = "PartialObjectMetadataList", f"meta.k8s.io/{version}"
        return render_plain(representation, {"kind": name, "apiVersion": version, "metadata": metadata, "items": parts})
    items = list(objs) if kind.custom is not None else [item(obj) for obj in objs]
    metadata = list_metadata(kind, metadata)
    listed = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": items}
    return render_plain(representation, listed)


def list_metadata(kind: Kind, metadata: Obj) -> Obj:
    """The metadata of a list of whole objects: one of custom resources says that it does not go on, as in 1.36."""
    return metadata if kind.custom is None else {"continue": "", **metadata}


def render_plain(representation: Representation, obj: Obj, status: int = 200) -> Response:
    """A JSON value in the media type of the answer."""
    if representation.yaml:
        return Response(status, yaml.dump(obj).encode(), representation.content_type)
    return Response(status, orjson.dumps(obj))
