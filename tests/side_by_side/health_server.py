"""A gRPC server whose health is asked by probes: `python health_server.py PORT OTHER`.

The health of the service `ill` is not serving, of `unsure` unknown, `slow` answers late, `none` is not found; of any
other it is well. On the other port is a server without a health service.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from haru.proto import grpchealth_pb2 as health

_NAME = "grpc.health.v1.Health"
_STATUS = health.HealthCheckResponse


def _check(request: health.HealthCheckRequest, context: grpc.ServicerContext) -> health.HealthCheckResponse:
    if request.service == "slow":
        time.sleep(3)
    if request.service == "none":
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    status = {"ill": _STATUS.NOT_SERVING, "unsure": _STATUS.UNKNOWN}.get(request.service, _STATUS.SERVING)
    return health.HealthCheckResponse(status=status)


def _served(port: str, *services: grpc.GenericRpcHandler) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(services)
    server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()
    return server


def main(port: str, other: str) -> None:
    """Serve until the process is ended."""
    method = grpc.unary_unary_rpc_method_handler(
        _check, health.HealthCheckRequest.FromString, health.HealthCheckResponse.SerializeToString
    )
    well = _served(port, grpc.method_handlers_generic_handler(_NAME, {"Check": method}))
    without = _served(other)
    well.wait_for_termination()
    without.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
