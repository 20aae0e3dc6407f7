"""Connect a client with a simulated container, in place of a kubelet."""

from __future__ import annotations

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.simulated.sessions import Session, Target
from haru.apiserver.registry.subresources.pods import chosen_container
from haru.apiserver.registry.subresources.simulated_logs import container_run
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.kube.errors import StatusError, bad_request_error
from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.files import PodSources
from haru.remote_command.channels import Wanted, channels_for

_SIMULATED = "simulated://"


async def connect_simulated(
    objects: ObjectStore, pods: SimulatedPods, streams: OpenStreams, request: Request, pod: Obj, *, attach: bool
) -> Response:
    """The connection with a container of a simulated pod. Raises StatusError."""
    command = () if attach else request.query.get("command") or ()
    sources = await pods.sources(pod, command)
    target = _target(pod, chosen_container(pod, request.param("container")), sources)
    if not attach and not command:
        raise bad_request_error("you must specify at least one command for the container")
    tty = request.flag("tty")
    wanted = Wanted(request.flag("stdin"), request.flag("stdout"), request.flag("stderr") and not tty, tty)
    try:
        if command:
            run_in_container(pod, target.container, command, sources)
    except (ValueError, ConfigError) as error:
        raise bad_request_error(str(error)) from error
    session = Session(objects, pods, streams, target, command, channels_for(request.scope, wanted))
    return Response(101, tunnel=session.run)


def _target(pod: Obj, name: str, sources: PodSources) -> Target:
    spec, known = pod.get("spec") or {}, statuses_of(pod).get(name) or {}
    if "running" not in (known.get("state") or {}):
        raise StatusError(500, "InternalError", f'unable to upgrade connection: container not found ("{name}")')
    if not str(known.get("containerID") or "").startswith(_SIMULATED):
        raise StatusError(503, "ServiceUnavailable", f"there is no kubelet on node {spec.get('nodeName')}")
    container = next(one for one in containers_of(spec) if one["name"] == name)
    run = container_run(pod, name, sources)
    assert run is not None
    return Target(pod, container, run, sources)
