"""A DRA driver that fails as the name of a claim says: `python failing_driver.py KUBELET-DIRECTORY`.

What a claim's name has in it: `lost` (an error of the claim), `upset` (the whole call fails), `silent` (no answer for
it), `nocdi` (a CDI device that no file describes), `slow` (it answers late), `keeps` (it cannot be given back at
first); any other is prepared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from haru.drivers.protocol import PLUGIN_TYPE, REGISTRATION, SERVICES, V1
from haru.proto import dra_pb2 as dra

NAME = "failing.example.com"
_kept: set[str] = set()


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
        device = dra.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=ids)
        answer.claims[claim.uid].devices.append(device)
    return answer


def _unprepare(request: dra.NodeUnprepareResourcesRequest, _: grpc.ServicerContext) -> Any:
    answer = dra.NodeUnprepareResourcesResponse()
    for claim in request.claims:
        error = "GPU 3 is busy" if "keeps" in claim.name and claim.uid not in _kept else ""
        _kept.add(claim.uid)
        answer.claims[claim.uid].error = error
    return answer


def _methods(**methods: tuple[Callable[..., Any], Any]) -> dict[str, grpc.RpcMethodHandler]:
    return {
        name: grpc.unary_unary_rpc_method_handler(call, asked.FromString, lambda answer: answer.SerializeToString())
        for name, (call, asked) in methods.items()
    }


def main(directory: Path) -> None:
    """Serve until the process is ended."""
    endpoint = directory / "plugins" / NAME / "dra.sock"
    registration = directory / "plugins_registry" / f"{NAME}-reg.sock"
    info = dra.PluginInfo(type=PLUGIN_TYPE, name=NAME, endpoint=str(endpoint), supported_versions=[V1])
    served = _methods(
        NodePrepareResources=(_prepare, dra.NodePrepareResourcesRequest),
        NodeUnprepareResources=(_unprepare, dra.NodeUnprepareResourcesRequest),
    )
    registers = _methods(
        GetInfo=(lambda *_: info, dra.InfoRequest),
        NotifyRegistrationStatus=(lambda *_: dra.RegistrationStatusResponse(), dra.RegistrationStatus),
    )
    servers = []
    for socket, name, handlers in ((endpoint, SERVICES[V1], served), (registration, REGISTRATION, registers)):
        socket.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers)])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        servers.append(server)
    servers[0].wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
