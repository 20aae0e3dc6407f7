"""A driver that shares nothing with Haru's library: bytes over raw gRPC, its claims in a text file, one DRA version.

Messages are put together by hand, so that a mistake in Haru's tables is not made on both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind

CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")
SLICES = known_kind("resource.k8s.io/v1", "ResourceSlice")


def text(number: int, value: str | bytes) -> bytes:
    """A field with a text or a message of less than 16 KiB."""
    data = value.encode() if isinstance(value, str) else value
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + data


def texts(data: bytes) -> dict[int, list[bytes]]:
    """The fields of a message that has only texts and messages."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(data):
        number, size, at = data[at] >> 3, data[at + 1], at + 2
        if size & 128:
            size, at = size & 127 | data[at] << 7, at + 1
        found.setdefault(number, []).append(data[at : at + size])
        at += size
    return found


class MinimalDriver:
    """v1beta1 only, no health, no CDI files: its devices have no ids at all. `faults` make it a bad one."""

    def __init__(self, name: str, node: str, client: ApiClient, kubelet: Path, *faults: str) -> None:
        self.name, self.node, self.client, self.faults = name, node, client, faults
        self.socket = kubelet / "plugins" / name / "it.sock"
        self.registrar = kubelet / "plugins_registry" / f"{name}.sock"
        self.state = kubelet / "plugins" / name / "claims.txt"
        self.servers: list[Any] = []
        self.consumed: list[Any] = []

    async def start(self) -> None:
        for path in (self.socket, self.registrar):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        dra = {"NodePrepareResources": self.prepare, "NodeUnprepareResources": self.unprepare}
        services = {"k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin": dra}
        if "health" in self.faults:
            watch = grpc.unary_stream_rpc_method_handler(self.watch)
            handler = grpc.method_handlers_generic_handler("v1alpha1.DRAResourceHealth", {"NodeWatchResources": watch})
            await self._serve(self.socket, services, handler)
        else:
            await self._serve(self.socket, services)
        await self._serve(
            self.registrar,
            {"pluginregistration.Registration": {"GetInfo": self.info, "NotifyRegistrationStatus": self.notified}},
        )

    async def _serve(self, path: Path, services: dict[str, dict[str, Any]], *more: Any) -> None:
        server = grpc.aio.server()
        for name, methods in services.items():
            handlers = {method: grpc.unary_unary_rpc_method_handler(call) for method, call in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        if more:
            server.add_generic_rpc_handlers(more)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self.servers.append(server)

    async def stop(self) -> None:
        """As if it were killed: the sockets stay."""
        for server in self.servers:
            await server.stop(None)
        self.servers = []

    async def publish(self, devices: list[str], **more: Any) -> None:
        pool = {"name": self.node, "generation": 7, "resourceSliceCount": 1}
        listed = [{"name": device, **more} for device in devices]
        spec = {"driver": self.name, "nodeName": self.node, "pool": pool, "devices": listed}
        await self.client.create(SLICES, {"metadata": {"generateName": "minimal-"}, "spec": spec})

    async def info(self, _: bytes, __: Any) -> bytes:
        type_ = "CSIPlugin" if "type" in self.faults else "DRAPlugin"
        versions = ["v9.DRAPlugin"] if "version" in self.faults else ["v1beta1.DRAPlugin"]
        versions += ["v1alpha1.DRAResourceHealth"] if "health" in self.faults else []
        return b"".join(
            [text(1, type_), text(2, self.name), text(3, str(self.socket)), *(text(4, version) for version in versions)]
        )

    async def notified(self, status: bytes, _: Any) -> bytes:
        self.told = status
        return b""

    async def prepare(self, request: bytes, context: Any) -> bytes:
        answer = b""
        for claim in texts(request).get(1, []):
            fields = {number: values[0].decode() for number, values in texts(claim).items()}
            namespace, uid, name = fields[1], fields[2], fields[3]
            if "forgetful" in self.faults:
                continue
            if "abort" in self.faults:
                await context.abort(grpc.StatusCode.INTERNAL, "it has burnt")
            try:
                found = await self.client.get(CLAIMS, name, namespace)
                if found["metadata"]["uid"] != uid and "credulous" not in self.faults:
                    raise LookupError("another one")
            except (StatusError, LookupError) as error:
                if "whole" in self.faults:
                    await context.abort(grpc.StatusCode.UNKNOWN, f"retrieve claim: {error}")
                answer += text(1, text(1, uid) + text(2, text(2, str(error))))
                continue
            devices = b""
            for one in found["status"]["allocation"]["devices"]["results"]:
                self.consumed.append(one.get("consumedCapacity"))
                count = len(self.claims()) if "restless" in self.faults else ""
                devices += text(1, text(1, one["request"]) + text(2, one["pool"]) + text(3, f"{one['device']}{count}"))
            self.state.write_text("".join(f"{known}\n" for known in [*self.claims(), uid]))
            answer += text(1, text(1, uid) + text(2, devices))
        return answer

    async def unprepare(self, request: bytes, _: Any) -> bytes:
        answer = b""
        for claim in texts(request).get(1, []):
            uid = texts(claim)[2][0].decode()
            known = self.claims()
            error = text(1, "never heard of it") if "strict" in self.faults and uid not in known else b""
            self.state.write_text("".join(f"{other}\n" for other in known if other != uid))
            answer += text(1, text(1, uid) + text(2, error))
        return answer

    async def watch(self, _: bytes, __: Any) -> AsyncIterator[bytes]:
        yield b""
        await asyncio.sleep(3600)

    def claims(self) -> list[str]:
        return self.state.read_text().split() if self.state.exists() else []
