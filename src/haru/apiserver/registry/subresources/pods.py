"""Parts of a pod that are written on their own, and its log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from haru.apiserver.proxy.kubelets.client import Endpoint, Kubelets
from haru.apiserver.registry.object_metadata import keep_server_metadata
from haru.apiserver.registry.subresources.log_websocket import over_websocket
from haru.apiserver.registry.subresources.simulated_log_stream import SimulatedLogStream
from haru.apiserver.registry.subresources.simulated_logs import container_run, simulated_log
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.registry.verbs import patch_with, update_with
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Response, text_response
from haru.apiserver.streams import OpenStreams
from haru.apiserver.upstream_session import unreached
from haru.event_loop import imported
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import FieldError, StatusError, bad_request_error, invalid_error, not_found_error
from haru.kube.meta import Obj
from haru.kube.validation.common import same
from haru.kube.validation.metadata import validate_metadata_update
from haru.kube.validation.pod_subresources import (
    validate_ephemeral_containers_update,
    validate_log_options,
    validate_resize,
)
from haru.kube.validation.types import Rules

if TYPE_CHECKING:
    import aiohttp

OPTIONS = ("follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream")
_NUMBERS = ("sinceSeconds", "tailLines", "limitBytes")
_ERROR_BYTES = 2048


async def log_of(call: Call, kubelets: Kubelets, endpoint: Endpoint, container: str) -> aiohttp.ClientResponse:
    """The kubelet's answer for the log of a container of the call's pod. Raises StatusError."""
    await imported("aiohttp")
    import aiohttp

    request = call.request
    given = [(name, request.param(name)) for name in OPTIONS if request.param(name)]
    path = "/".join(quote(part, safe="") for part in (call.namespace, call.name, container))
    target = f"/containerLogs/{path}" + (f"?{urlencode(given)}" if given else "")
    endpoint = replace(endpoint, is_verified=not request.flag("insecureSkipTLSVerifyBackend"))
    answer: aiohttp.ClientResponse | None = None
    try:
        async with asyncio.timeout(kubelets.seconds):
            sent = await kubelets.request(endpoint, "GET", target)
            answer = sent
            said = b"" if sent.status == 200 else await sent.content.read(_ERROR_BYTES)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        if answer is not None:
            answer.close()
        why = unreached(error, f"no answer within {kubelets.seconds:g} s")
        raise StatusError(500, "InternalError", f'Get "https://{endpoint.netloc}{target}": {why}') from error
    assert answer is not None
    if answer.status != 200:
        answer.close()
        raise _refused(call, answer.status, said.decode("utf-8", "replace").strip())
    return answer


def _refused(call: Call, status: int, text: str) -> StatusError:
    """A kubelet's error as the API tells it."""
    if status == 400:
        return bad_request_error(text)
    if status == 500:
        return StatusError(500, "InternalError", f"Internal error occurred: {text}")
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 422: "Invalid", 503: "ServiceUnavailable"}
    details = {"name": call.name, "kind": "pods", "causes": [{"reason": "UnexpectedServerResponse", "message": text}]}
    return StatusError(status, reasons.get(status, "InternalError"), f"{text} (get pods {call.name})", details)


DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_SIZES = ("resources", "resizePolicy")


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
    if errors := validate_metadata_update(metadata, live["metadata"]):
        raise call.invalid(call.name, errors)
    if not same(spec, live["spec"]):
        metadata["generation"] = int(metadata.get("generation") or 0) + 1
    return {**live, "metadata": metadata, "spec": spec}


async def _ephemeral(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Containers may be added, never changed or removed; the pod that comes of it is judged whole."""
    wanted = apply_defaults(wanted, call.resource.kind, call.objects.gates)
    spec = _spec_with(live, "ephemeralContainers", wanted)
    new = _next_generation(call, wanted, live, spec)
    _require(call, validate_ephemeral_containers_update(new, live, _rules(call, live)))
    await call.admission.validate_subresource(call, new, live)
    return new


async def _resized(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Only cpu and memory may change, and not so that the pod changes its QoS class (KEP 1287) or outgrows its node."""
    wanted = apply_defaults(wanted, call.resource.kind, call.objects.gates)
    new = _next_generation(call, wanted, live, _resized_spec(wanted, live))
    _require(call, validate_resize(new, live, _rules(call, live)))
    await call.admission.validate_subresource(call, new, live)
    return new


def _rules(call: Call, live: Obj) -> Rules:
    return Rules(call.objects.gates, call.objects.check_selector, live)


def _resized_spec(wanted: Obj, live: Obj) -> Obj:
    """The stored spec with the wanted resources; containers that are others than those stored stay, to be refused."""
    spec = _spec_with(live, "resources", wanted)
    given = wanted.get("spec") or {}
    for member in ("containers", "initContainers"):
        before, after = spec.get(member) or [], given.get(member) or []
        if [one.get("name") for one in before] == [one.get("name") for one in after]:
            after = [_with_sizes(one, size) for one, size in zip(before, after, strict=True)]
        if before or after:
            spec[member] = after
    return spec


def _with_sizes(container: Obj, wanted: Obj) -> Obj:
    kept = {name: value for name, value in container.items() if name not in _SIZES}
    return {**kept, **{name: wanted[name] for name in _SIZES if name in wanted}}


def _spec_with(live: Obj, member: str, wanted: Obj) -> Obj:
    """The stored spec with one member as the writer wants it."""
    spec = {name: value for name, value in live["spec"].items() if name != member}
    given = wanted.get("spec") or {}
    return {**spec, member: given[member]} if member in given else spec


def _require(call: Call, errors: list[FieldError]) -> None:
    if errors:
        raise call.invalid(call.name, errors)


async def read_log(kubelets: Kubelets | None, simulated: SimulatedPods, streams: OpenStreams, call: Call) -> Response:
    """GET of a pod's log: the kubelet's of its node; that of a simulated one is what its commands print."""
    if errors := validate_log_options(
        {name: call.request.number(name) for name in _NUMBERS if call.request.param(name)},
        since_time=bool(call.request.param("sinceTime")),
    ):
        raise invalid_error("", "PodLogOptions", call.name, errors)
    pod = await call.objects.read("", "pods", call.namespace, call.name)
    if pod is None:
        raise call.not_found()
    container = chosen_container(pod, call.request.param("container"))
    node = (pod.get("spec") or {}).get("nodeName")
    if node and await call.objects.peek("", "nodes", "", node) is None:
        raise not_found_error("", "pods", node)  # as 1.36 words it
    endpoint = await kubelets.endpoint(node) if node and kubelets is not None else None
    if kubelets is None or endpoint is None:
        return over_websocket(call.request, await _simulated_log(simulated, streams, call, pod, container))
    from haru.apiserver.peers.proxy import AnswerStream

    answer = await log_of(call, kubelets, endpoint, container)
    found = Response(200, content_type="text/plain", stream=AnswerStream(streams, answer).run)
    return over_websocket(call.request, found)


async def _simulated_log(
    simulated: SimulatedPods, streams: OpenStreams, call: Call, pod: Obj, container: str
) -> Response:
    """The log of a simulated container; of one that runs it can be followed."""
    now, param = call.objects.clock(), call.request.param
    if call.request.flag("follow") and not call.request.flag("previous"):
        since = call.objects.store.revision
        pod = await call.objects.read("", "pods", call.namespace, call.name) or pod
        run = container_run(pod, container, await simulated.sources(pod))
        if run is not None and run.ended is None:
            stream = SimulatedLogStream(call, simulated, streams, since, pod, container, run)
            return Response(200, content_type="text/plain; charset=utf-8", stream=stream.run)
    return text_response(simulated_log(pod, container, param, now, await simulated.sources(pod)).decode())


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
