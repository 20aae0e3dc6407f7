"""Scale: the replica count of a workload, seen as autoscaling/v1 Scale whatever the kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from haru.apiserver.apiextensions.reader import converted, read_record
from haru.apiserver.encoding.rendering import include_object, partial, render_plain, representation_of
from haru.apiserver.registry.object_metadata import check_identity, keep_server_metadata
from haru.apiserver.registry.patch import APPLY_PATCH, check_patch, configuration, decoded, patcher
from haru.apiserver.registry.write import Outcome, change, prepare_change
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response
from haru.kube import printers
from haru.kube.custom.shaping import pruned
from haru.kube.errors import bad_request_error, internal_error, invalid, invalid_error
from haru.kube.kind_strategies import with_member
from haru.kube.kinds import Kind, by_kind
from haru.kube.meta import Obj, value_at
from haru.kube.patch.apply import ManagedWrite, server_side_apply
from haru.kube.patch.scale_owners import SCALE_VERSION, in_scale, in_workload
from haru.kube.schema import type_of
from haru.kube.selectors import label_selector_text

_KIND = by_kind("autoscaling/v1", "Scale")
_UNSET = -(1 << 31)
"""Stands in the Scale for the count that a custom resource does not have, until a write gives it one."""
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Obj, kind: Kind) -> Obj:
    """The Scale of a workload; a custom resource's definition says where its counts lie."""
    paths = _paths(kind)
    shown: Obj = {"replicas": _count(obj, paths["statusReplicasPath"])}
    if kind.custom is not None:
        selector = _at(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
        if isinstance(selector, str) and selector:
            shown["selector"] = selector
    elif (selector := (obj.get("spec") or {}).get("selector")) is not None:
        if obj["kind"] == "ReplicationController":
            selector = {"matchLabels": selector}  # an older kind: a plain map
        shown["selector"] = label_selector_text(selector)
    replicas = _count(obj, paths["specReplicasPath"])
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: obj["metadata"][name] for name in _METADATA if name in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": shown,
    }


def _count(obj: Obj, path: str) -> int:
    value = _at(obj, path) or 0
    if not isinstance(value, int):
        raise internal_error(f"{path} is no whole number")
    return value


_PATHS: Obj = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def _paths(kind: Kind) -> Obj:
    return kind.custom.scale or _PATHS if kind.custom is not None else _PATHS


def _names(kind: Kind) -> list[str]:
    """The path of the wanted count."""
    return str(_paths(kind)["specReplicasPath"]).split(".")[1:]


def _at(obj: Obj, path: str) -> Any:
    return value_at(obj, *path.split(".")[1:])


def _has_count(obj: Obj, kind: Kind) -> bool:
    """Whether the workload says how many replicas it wants: custom resources need not."""
    return kind.custom is None or _at(obj, _paths(kind)["specReplicasPath"]) is not None


def _with_replicas(obj: Obj, kind: Kind, replicas: int) -> Obj:
    """The object with another count at its place."""

    def placed(value: Any, rest: list[str]) -> Any:
        if not rest:
            return replicas
        inner = value if isinstance(value, dict) else {}
        return {**inner, rest[0]: placed(inner.get(rest[0]), rest[1:])}

    made: Obj = placed(obj, _names(kind))
    return made


async def read(call: Call) -> Response:
    """GET of the Scale."""
    record = await call.objects.record(call.resource, call.namespace, call.name)
    if record is None:
        raise call.not_found()
    assert _KIND is not None
    obj = await read_record(record, call.resource)
    if not _has_count(obj, call.resource.kind):
        path = _paths(call.resource.kind)["specReplicasPath"]
        raise internal_error(f"the spec replicas field {json.dumps(path)} does not exist")
    return _rendered(call, scale_of(obj, call.resource.kind))


def _rendered(call: Call, scale: Obj) -> Response:
    """The Scale as the client wants it."""
    assert _KIND is not None
    representation = representation_of(call.request)
    if representation.shape == "partial":
        scale = partial(scale, representation.version)
    elif representation.shape == "table":
        scale = printers.table(
            _KIND,
            [scale],
            call.objects.clock(),
            include_object(call.request),
            list_metadata={"resourceVersion": scale["metadata"].get("resourceVersion", "")},
        )
    return render_plain(representation, scale)


async def update(call: Call) -> Response:
    """PUT of the Scale."""
    assert _KIND is not None
    read_write_options(call)
    wanted = await bodies.read_object(call.request, _KIND)
    check_identity(call, wanted)
    return await _write(call, lambda scale: wanted)


async def patch(call: Call) -> Response:
    """PATCH of the Scale."""
    assert _KIND is not None
    content_type = check_patch(call)
    data = await call.request.body()
    if content_type == APPLY_PATCH:
        return await _apply(call, configuration(call, _KIND, data))
    patched, repeated = patcher(call.request, type_of(_KIND), content_type, data)
    return await _write(call, lambda scale: decoded(call, _KIND, patched(scale), repeated))


def _replicas(call: Call, scale: Obj) -> int:
    replicas = int((scale.get("spec") or {}).get("replicas") or 0)
    if replicas == _UNSET and call.resource.kind.custom is not None:
        path = _paths(call.resource.kind)["specReplicasPath"]
        raise bad_request_error(f"the spec replicas field {json.dumps(path)} cannot be empty")
    if replicas < 0 and call.resource.kind.custom is None:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_error("autoscaling", "Scale", call.name, [error])
    return replicas


async def _apply(call: Call, applied: Obj) -> Response:
    """Apply of a Scale: only the owners of the count, and what the Scale shows of it, have a say."""
    assert _KIND is not None
    kind = call.resource.kind
    path = _names(kind)
    write = ManagedWrite(call.manager, SCALE_VERSION, type_of(_KIND), "scale", "")

    async def make(live: Obj) -> Obj:
        before, owners = _to_write(live, kind), live["metadata"].get("managedFields")
        given = {**before, "metadata": with_member(before["metadata"], "managedFields", in_scale(owners, path))}
        scale = server_side_apply(given, applied, write, force=call.request.flag("force"))
        check_identity(call, scale)
        written = await _written(call, scale, live)
        owners = in_workload(owners, path, scale, write.owner("Apply"), kind.api_version)
        return {**written, "metadata": with_member(written["metadata"], "managedFields", owners)}

    return await _answer(call, await change(replace(call, chain=None), make, applied=True))


async def _write(call: Call, make_scale: Callable[[Obj], Obj]) -> Response:
    kind = call.resource.kind

    async def make(live: Obj) -> Obj:
        scale = make_scale(_to_write(live, kind))
        check_identity(call, scale)
        return await _written(call, scale, live)

    async def prepare(inner: Call, wanted: Obj, live: Obj) -> Obj:
        restored = {**wanted, "metadata": keep_server_metadata(inner, wanted, live)}
        return await prepare_change(inner, restored, live)

    outcome = await change(replace(call, chain=None), make, prepare=prepare, retry=call.verb == "patch")
    return await _answer(call, outcome)


def _to_write(live: Obj, kind: Kind) -> Obj:
    """The Scale that a write changes."""
    before = scale_of(live, kind)
    if not _has_count(live, kind):
        before["spec"]["replicas"] = _UNSET
    return before


async def _written(call: Call, scale: Obj, live: Obj) -> Obj:
    """The workload with what is written in its Scale, after those who change and judge Scales."""
    kind, before = call.resource.kind, _to_write(live, call.resource.kind)
    if call.chain is not None:
        scale = await call.chain.change_scale(call, scale, before)
    replicas = _replicas(call, scale)
    if call.chain is not None:
        await call.chain.judge_scale(call, scale_of(_with_replicas(live, kind, replicas), kind), before)
    given = scale.get("metadata") or {}
    metadata = dict(live["metadata"])
    metadata["resourceVersion"] = given.get("resourceVersion") or ""
    if given.get("uid"):
        metadata["uid"] = given["uid"]
    written = _with_replicas({**live, "metadata": metadata}, kind, replicas)
    # A definition may say that the count lies where its schema knows nothing: nothing is kept there.
    return pruned(written, kind.custom.schema)[0] if kind.custom is not None else written


async def _answer(call: Call, outcome: Outcome) -> Response:
    if outcome.record is not None:
        shown = await read_record(outcome.record, call.resource)
    else:
        assert outcome.obj is not None
        shown = await converted(outcome.obj, call.resource.kind)
    return _rendered(call, scale_of(shown, call.resource.kind))
