"""Binding: the one write that puts a pod on a node."""

from __future__ import annotations

from dataclasses import replace

from haru.apiserver.registry.object_metadata import place_in_namespace
from haru.apiserver.registry.write import change
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response, json_response, success_status
from haru.kube.errors import (
    FieldError,
    StatusError,
    bad_request_error,
    conflict_error,
    invalid_error,
    required,
)
from haru.kube.kinds import by_kind
from haru.kube.meta import Obj, set_condition

_KIND = by_kind("v1", "Binding")
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


async def bind(call: Call) -> Response:
    """POST of a Binding, below its pod or to `bindings`."""
    assert _KIND is not None
    read_write_options(call)
    binding = await bodies.read_object(call.request, _KIND)
    metadata = binding.setdefault("metadata", {})
    resource, name = call.objects.served.preferred("", "pods"), call.name or metadata.get("name") or ""
    pods = replace(call, resource=resource, name=name, subresource="binding", together=[], findings=[])
    place_in_namespace(pods, metadata)
    await call.admission.admit_posted(call, name)
    _validate(pods.name, binding)
    if pods.chain is not None:
        binding = await pods.chain.about_subresource(pods, binding)
        metadata = binding.setdefault("metadata", {})
        _validate(pods.name, binding)
        pods.chain = None

    labelled = await _with_topology(call, binding)

    async def make(pod: Obj) -> Obj:
        for member, what in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            given, found = metadata.get(member), pod["metadata"][member]
            if given and given != found:
                key = pods.resource.registry_key(pods.namespace, pods.name)
                why = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
                why = (
                    f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
                )
                raise conflict_error("", "pods", pods.name, why)
        return bound(call, pod, labelled)

    await change(pods, make, prepare=_as_it_is, applied=True)
    return json_response(success_status({}) | {"code": 201}, 201)


async def _with_topology(call: Call, binding: Obj) -> Obj:
    """The binding with the zone and region of its node, which the pod then has as labels (KEP-4742)."""
    if not call.objects.gates.enabled("PodTopologyLabelsAdmission"):
        return binding
    node = await call.objects.peek("", "nodes", "", binding["target"]["name"])
    known = (node or {"metadata": {}})["metadata"].get("labels") or {}
    found = {name: known[name] for name in _TOPOLOGY if name in known}
    if not found:
        return binding
    metadata = binding.get("metadata") or {}
    return {**binding, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **found}}}


async def _as_it_is(call: Call, wanted: Obj, live: Obj) -> Obj:
    return wanted


def _validate(name: str, binding: Obj) -> None:
    if (binding["metadata"].get("name") or "") != name:
        raise bad_request_error("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    errors: list[FieldError] = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(
            FieldError("FieldValueNotSupported", "target.kind", target["kind"], 'supported values: "Node", ""')
        )
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        raise invalid_error("", "Binding", name, errors)


def _conflict(name: str, why: str) -> StatusError:
    return conflict_error("", "pods/binding", name, why)


def bound(call: Call, pod: Obj, binding: Obj) -> Obj:
    """The pod on its node; 409 for one that has a node, is going away, or is held back by gates."""
    metadata, spec, status = dict(pod["metadata"]), dict(pod.get("spec") or {}), dict(pod.get("status") or {})
    name = metadata["name"]
    if metadata.get("deletionTimestamp"):
        raise _conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _conflict(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _conflict(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = binding["target"]["name"]
    given = binding.get("metadata") or {}
    if given.get("annotations"):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **given["annotations"]}
    if given.get("labels") and call.objects.gates.enabled("PodTopologyLabelsAdmission"):
        metadata["labels"] = {**(metadata.get("labels") or {}), **given["labels"]}
    condition = {"type": "PodScheduled", "status": "True"}
    # What the pod waited for has come (KEP-5278): the nomination must not be counted beside the pod.
    status.pop("nominatedNodeName", None)
    status["conditions"] = set_condition(status.get("conditions"), condition, call.now)
    return {**pod, "metadata": metadata, "spec": spec, "status": status}
