"""A DRA driver that fails as the name of a claim says: `python failing_driver.py KUBELET-DIRECTORY`.

What a claim's name has in it: `lost` (an error of the claim), `upset` (the whole call fails), `silent` (no answer for
it), `nocdi` (a CDI device that no file describes), `slow` (it answers late), `keeps` (it cannot be given back at
first); any other is prepared. Of some devices it tells how they are: `sick` is ill, `turns` becomes so after some
seconds in use, of `brief` it tells once, for two seconds, of `mute` nothing, and all others are well.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from haru.drivers.protocol import HEALTH, PLUGIN_TYPE, REGISTRATION, SERVICES, V1
from haru.proto import dra_pb2 as dra

NAME = "failing.example.com"
_HEALTH = {
    "d": (dra.HEALTHY, ""),
    "sick": (dra.UNHEALTHY, "it is too hot"),
    "turns": (dra.UNHEALTHY, "ECC errors"),
    "brief": (dra.HEALTHY, ""),
    "mute": (dra.UNKNOWN, ""),
}
_TURNS_SECONDS = 12
_kept: set[str] = set()
_used: dict[str, float] = {}
"""Since when a device is in use."""


def _prepare(request: dra.NodePrepareResourcesRequest, context: grpc.ServicerContext) -> Any:
    answer = dra.NodePrepareResourcesResponse()
    for claim in request.claims:
        if "upset" in claim.name:
            context.abort(grpc.StatusCode.INTERNAL, "the driver is upset")
        if "slow" in claim.name:
            time.sleep(4)
        if "silent" in claim.name:
            continue
        if "lost" in claim.name:
            answer.claims[claim.uid].error = "GPU 3 has fallen off the bus"
            continue
        ids = [f"{NAME}/card=none"] if "nocdi" in claim.name else []
        name = next((one for one in _HEALTH if one in claim.name), "d")
        _used.setdefault(name, time.monotonic())
        device = dra.Device(request_names=["r"], pool_name="p", device_name=name, cdi_device_ids=ids)
        answer.claims[claim.uid].devices.append(device)
    return answer


def _unprepare(request: dra.NodeUnprepareResourcesRequest, _: grpc.ServicerContext) -> Any:
    answer = dra.NodeUnprepareResourcesResponse()
    for claim in request.claims:
        error = "GPU 3 is busy" if "keeps" in claim.name and claim.uid not in _kept else ""
        _kept.add(claim.uid)
        answer.claims[claim.uid].error = error
    return answer


def _watch(_: dra.NodeWatchResourcesRequest, context: grpc.ServicerContext) -> Iterator[Any]:
    told = set[str]()
    while context.is_active():
        answer = dra.NodeWatchResourcesResponse()
        for name, (health, message) in _HEALTH.items():
            if name == "mute" or (name == "brief" and (name in told or name not in _used)):
                continue
            if name == "turns" and time.monotonic() < _used.get(name, math.inf) + _TURNS_SECONDS:
                health, message = dra.HEALTHY, ""
            device = dra.DeviceIdentifier(pool_name="p", device_name=name)
            seconds = 2 if name == "brief" else 0
            answer.devices.add(device=device, health=health, message=message, health_check_timeout_seconds=seconds)
            told.add(name)
        yield answer
        time.sleep(1)


def _methods(**methods: tuple[Callable[..., Any], Any]) -> dict[str, grpc.RpcMethodHandler]:
    return {
        name: grpc.unary_unary_rpc_method_handler(call, asked.FromString, lambda answer: answer.SerializeToString())
        for name, (call, asked) in methods.items()
    }


def main(directory: Path) -> None:
    """Serve until the process is ended."""
    endpoint = directory / "plugins" / NAME / "dra.sock"
    registration = directory / "plugins_registry" / f"{NAME}-reg.sock"
    info = dra.PluginInfo(type=PLUGIN_TYPE, name=NAME, endpoint=str(endpoint), supported_versions=[V1, HEALTH])
    served = _methods(
        NodePrepareResources=(_prepare, dra.NodePrepareResourcesRequest),
        NodeUnprepareResources=(_unprepare, dra.NodeUnprepareResourcesRequest),
    )
    registers = _methods(
        GetInfo=(lambda *_: info, dra.InfoRequest),
        NotifyRegistrationStatus=(lambda *_: dra.RegistrationStatusResponse(), dra.RegistrationStatus),
    )
    watch = grpc.unary_stream_rpc_method_handler(
        _watch, dra.NodeWatchResourcesRequest.FromString, lambda answer: answer.SerializeToString()
    )
    servers = []
    for socket, services in (
        (endpoint, {SERVICES[V1]: served, SERVICES[HEALTH]: {"NodeWatchResources": watch}}),
        (registration, {REGISTRATION: registers}),
    ):
        socket.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        handlers = [grpc.method_handlers_generic_handler(*one) for one in services.items()]
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        servers.append(server)
    servers[0].wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
