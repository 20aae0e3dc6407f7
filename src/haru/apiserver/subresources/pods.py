"""Parts of a pod that are written on their own, and its log."""

from __future__ import annotations

from haru.apiserver.admission.accounts import check_ephemeral_containers
from haru.apiserver.admission.limit_ranges import check_resized_pod
from haru.apiserver.admission.pod_standards import check_pod_update
from haru.apiserver.call import Call
from haru.apiserver.core import Obj
from haru.apiserver.http import Response, text_response
from haru.apiserver.rest import patch_with, update_with
from haru.apiserver.writing import keep_server_metadata
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import FieldError, bad_request_error, forbidden, invalid
from haru.kube.strategy import qos_class

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_RESIZABLE = frozenset({"cpu", "memory"})


async def update_ephemeral_containers(call: Call) -> Response:
    """PUT of a pod's ephemeral containers."""
    return await update_with(call, _ephemeral)


async def patch_ephemeral_containers(call: Call) -> Response:
    """PATCH of a pod's ephemeral containers."""
    return await patch_with(call, _ephemeral)


async def update_resources(call: Call) -> Response:
    """PUT of the resources of a pod's containers."""
    return await update_with(call, _resized)


async def patch_resources(call: Call) -> Response:
    """PATCH of the resources of a pod's containers."""
    return await patch_with(call, _resized)


def _next_generation(call: Call, wanted: Obj, live: Obj, spec: Obj) -> Obj:
    metadata = keep_server_metadata(call, wanted, live)
    for name in ("labels", "annotations", "finalizers", "ownerReferences"):
        if name in live["metadata"]:
            metadata[name] = live["metadata"][name]
        else:
            metadata.pop(name, None)
    if spec != live["spec"]:
        metadata["generation"] = int(metadata.get("generation") or 0) + 1
    return {**live, "metadata": metadata, "spec": spec}


async def _ephemeral(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Containers may be added, never changed or removed."""
    wanted = apply_defaults(wanted, call.resource.kind, call.core.gates)
    before = (live.get("spec") or {}).get("ephemeralContainers") or []
    after = (wanted.get("spec") or {}).get("ephemeralContainers") or []
    errors: list[FieldError] = []
    named = {container.get("name"): container for container in after}
    for container in before:
        name = container["name"]
        if name not in named:
            why = f'existing ephemeral containers "{name}" may not be removed'
            errors.append(forbidden("spec.ephemeralContainers", why))
        elif named[name] != container:
            why = f'existing ephemeral containers "{name}" may not be changed'
            errors.append(forbidden("spec.ephemeralContainers", why))
    others = {c["name"] for member in ("containers", "initContainers") for c in live["spec"].get(member) or ()}
    for index, container in enumerate(after):
        field = f"spec.ephemeralContainers[{index}]"
        if container.get("name") in others or len(named) != len(after):
            errors.append(FieldError("FieldValueDuplicate", f"{field}.name", container.get("name")))
        if container.get("resources"):
            errors.append(forbidden(f"{field}.resources", "cannot be set for an Ephemeral Container"))
    if errors:
        raise call.invalid(call.name, errors)
    new = _next_generation(call, wanted, live, {**live["spec"], "ephemeralContainers": after})
    await check_ephemeral_containers(call, new)
    await check_pod_update(call, new, live)
    return new


async def _resized(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Only cpu and memory of containers may change, and not so that the pod changes its QoS class (KEP 1287)."""
    spec = dict(live["spec"])
    errors: list[FieldError] = []
    for member in ("containers", "initContainers"):
        given = {c.get("name"): c for c in (wanted.get("spec") or {}).get(member) or ()}
        resized = []
        for index, container in enumerate(spec.get(member) or ()):
            resources = (given.get(container["name"]) or container).get("resources") or {}
            if _fixed(resources) != _fixed(container.get("resources") or {}):
                errors.append(forbidden(f"spec.{member}[{index}].resources", "only cpu and memory are mutable"))
            resized.append({**container, "resources": resources})
        if resized:
            spec[member] = resized
    if not errors and qos_class(spec) != (live.get("status") or {}).get("qosClass", qos_class(live["spec"])):
        why = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", qos_class(spec), why))
    if errors:
        raise call.invalid(call.name, errors)
    new = _next_generation(call, wanted, live, spec)
    await check_resized_pod(call, new, live)
    return new


def _fixed(resources: Obj) -> Obj:
    kept = {name: value for name, value in resources.items() if name not in ("requests", "limits")}
    for member in ("requests", "limits"):
        rest = {name: value for name, value in (resources.get(member) or {}).items() if name not in _RESIZABLE}
        if rest:
            kept[member] = rest
    return kept


async def read_log(call: Call) -> Response:
    """GET of a pod's log: the kubelet's of its node; that of a simulated one is empty."""
    pod = await call.core.read("", "pods", call.namespace, call.name)
    if pod is None:
        raise call.not_found()
    container = chosen_container(pod, call.request.param("container"))
    node, kubelets = (pod.get("spec") or {}).get("nodeName"), call.core.kubelets
    endpoint = await kubelets.endpoint(node) if node and kubelets is not None else None
    if kubelets is None or endpoint is None:
        return text_response("")
    from haru.apiserver.kubelets.logs import log_of

    return await log_of(call, kubelets, endpoint, container)


def chosen_container(pod: Obj, chosen: str) -> str:
    """The container that is asked for; 400 when that is not clear or it does not exist."""
    spec, pod_name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [c["name"] for c in spec.get("containers") or ()]
    every = names + [c["name"] for m in ("initContainers", "ephemeralContainers") for c in spec.get(m) or ()]
    if not chosen:
        chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER) or ""
        if not chosen and len(names) > 1:
            listed = " ".join(names)
            raise bad_request_error(f"a container name must be specified for pod {pod_name}, choose one of: [{listed}]")
        chosen = chosen or names[0]
    if chosen not in every:
        raise bad_request_error(f"container {chosen} is not valid for pod {pod_name}")
    return str(chosen)
