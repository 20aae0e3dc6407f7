"""Scale: the replica count of a workload, seen as autoscaling/v1 Scale whatever the kind."""

from __future__ import annotations

from haru.apiserver import bodies
from haru.apiserver.call import Call, read_write_options
from haru.apiserver.core import Obj
from haru.apiserver.http import Response, json_response
from haru.apiserver.patching import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, check_options
from haru.apiserver.rendering import versioned
from haru.apiserver.writing import change, keep_server_metadata, prepare_change
from haru.kube.conversion import convert
from haru.kube.errors import invalid, invalid_error, unsupported_media_type_error
from haru.kube.kinds import by_kind
from haru.kube.patch.json_patch import apply_json_patch
from haru.kube.patch.merge_patch import apply_merge_patch

_KIND = by_kind("autoscaling/v1", "Scale")
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(obj: Obj) -> Obj:
    """The Scale of a workload."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    shown: Obj = {"replicas": int(status.get("replicas") or 0)}
    selector = spec.get("selector")
    if selector is not None:
        if obj["kind"] == "ReplicationController":
            selector = {"matchLabels": selector}  # an older kind: a plain map
        shown["selector"] = selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: obj["metadata"][name] for name in _METADATA if name in obj["metadata"]},
        "spec": {"replicas": int(spec.get("replicas") or 0)},
        "status": shown,
    }


_OPERATORS = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


def selector_text(selector: Obj) -> str:
    """A label selector as a query parameter would hold it."""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        terms.append((key, _OPERATORS[expression["operator"]].format(key, values)))
    return ",".join(text for _, text in sorted(terms))


async def read(call: Call) -> Response:
    """GET of the Scale."""
    record = await call.core.record(call.resource, call.namespace, call.name)
    if record is None:
        raise call.not_found()
    return json_response(scale_of(versioned(record, call.resource)))


async def update(call: Call) -> Response:
    """PUT of the Scale."""
    assert _KIND is not None
    read_write_options(call)
    wanted = await bodies.read_object(call.request, _KIND)
    return await _write(call, lambda scale: wanted)


async def patch(call: Call) -> Response:
    """PATCH of the Scale."""
    read_write_options(call)
    content_type = bodies.media_type(call.request)
    if content_type not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        raise unsupported_media_type_error(
            f"a Scale can be patched with {JSON_PATCH}, {MERGE_PATCH} and {STRATEGIC_PATCH}, not {content_type}"
            + (": apply to the workload itself" if content_type == APPLY_PATCH else "")
        )
    check_options(call, content_type)
    value = bodies.parse_json(await call.request.body())
    apply = apply_json_patch if content_type == JSON_PATCH else apply_merge_patch
    return await _write(call, lambda scale: apply(scale, value))


async def _write(call: Call, make_scale: object) -> Response:
    assert callable(make_scale)

    async def make(live: Obj) -> Obj:
        scale = make_scale(scale_of(live))
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        if not isinstance(replicas, int) or replicas < 0:
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid_error("autoscaling", "Scale", call.name, [error])
        given = scale.get("metadata") or {}
        metadata = dict(live["metadata"])
        metadata["resourceVersion"] = given.get("resourceVersion") or ""
        if given.get("uid"):
            metadata["uid"] = given["uid"]
        return {**live, "metadata": metadata, "spec": {**(live.get("spec") or {}), "replicas": replicas}}

    async def prepare(inner: Call, wanted: Obj, live: Obj) -> Obj:
        restored = {**wanted, "metadata": keep_server_metadata(inner, wanted, live)}
        return await prepare_change(inner, restored, live)

    outcome = await change(call, make, prepare=prepare, retry=False)
    obj = outcome.obj if outcome.record is None else versioned(outcome.record, call.resource)
    assert obj is not None
    return json_response(scale_of(convert(obj, call.resource.kind)))
