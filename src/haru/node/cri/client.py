"""The calls of a container runtime over its Unix socket, each bounded in time.

What is not there is no error for calls that stop or remove it: they may be repeated until they are through. Source: the
published CRI, v1; timeouts as the kubelet's (--runtime-request-timeout, twice as long for a sandbox).
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from haru.node.cri.errors import CriError
from haru.node.cri.listing import CONTAINER_STATS, CONTAINERS, IMAGE_LIST, IMAGES, RUNTIME, SANDBOXES, Lister
from haru.plugin_channel import OPTIONS
from haru.proto import MessageError, decode
from haru.proto import cri_pb2 as cri

if TYPE_CHECKING:
    import grpc.aio

Answer = TypeVar("Answer", bound=Message)
REQUEST_SECONDS = 120.0
PULL_SECONDS = 3600.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_OPTIONS = (
    *OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
Observer = Callable[[str, float, str], None]
"""Told of every call: operation, seconds, the name of its status."""


def endpoint_target(endpoint: str) -> str:
    """gRPC's name of an endpoint: `unix:///run/containerd/containerd.sock` or a path. Raises ValueError."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError(f'"{endpoint}": write the absolute path of a Unix socket, as unix:///run/NAME.sock')
    return f"unix:{path}"


class RuntimeClient:
    """One runtime. All calls raise `CriError`."""

    def __init__(
        self,
        endpoint: str,
        *,
        streaming: bool = False,
        seconds: float = REQUEST_SECONDS,
        observe: Observer = lambda operation, seconds, code: None,
    ) -> None:
        self.endpoint = endpoint
        self._target = endpoint_target(endpoint)
        self._seconds = seconds
        self._observe = observe
        self._channel: grpc.aio.Channel | None = None
        self.lister = Lister(self, streaming=streaming)

    async def __aenter__(self) -> RuntimeClient:
        import grpc.aio

        self._channel = grpc.aio.insecure_channel(self._target, options=_OPTIONS)
        return self

    async def __aexit__(self, *_: object) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    # -- the runtime --------------------------------------------------------------------------------------------------

    async def version(self) -> cri.VersionResponse:
        """Read name and version of the runtime."""
        request = cri.VersionRequest(version="0.1.0")
        return await self._call("version", RUNTIME + "Version", request, cri.VersionResponse)

    async def status(self) -> cri.StatusResponse:
        """Its conditions RuntimeReady and NetworkReady, and what its handlers can do."""
        return await self._call("status", RUNTIME + "Status", cri.StatusRequest(), cri.StatusResponse)

    async def cgroup_driver(self) -> int | None:
        """The runtime's cgroup driver; None if it reports none (containerd before 2.0)."""
        try:
            method, request = RUNTIME + "RuntimeConfig", cri.RuntimeConfigRequest()
            answer = await self._call("runtime_config", method, request, cri.RuntimeConfigResponse)
        except CriError as error:
            if error.code != "UNIMPLEMENTED":
                raise
            return None
        return answer.linux.cgroup_driver if answer.HasField("linux") else None

    # -- sandboxes ----------------------------------------------------------------------------------------------------

    async def run_sandbox(self, config: cri.PodSandboxConfig, handler: str = "") -> str:
        """Make the sandbox of a pod and its network; its id."""
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
        method = RUNTIME + "RunPodSandbox"
        answer = await self._call("run_podsandbox", method, request, cri.RunPodSandboxResponse, 2 * self._seconds)
        return answer.pod_sandbox_id

    async def stop_sandbox(self, sandbox: str) -> None:
        """Stop a sandbox with its containers and network; a missing one is no error."""
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        await self._gone_is_well("stop_podsandbox", RUNTIME + "StopPodSandbox", request)

    async def remove_sandbox(self, sandbox: str) -> None:
        """Remove a sandbox with its containers; a missing one is no error."""
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        await self._gone_is_well("remove_podsandbox", RUNTIME + "RemovePodSandbox", request)

    async def sandbox_status(self, sandbox: str) -> cri.PodSandboxStatus:
        """Read its status; NOT_FOUND if it is gone."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        method = RUNTIME + "PodSandboxStatus"
        answer = await self._call("podsandbox_status", method, request, cri.PodSandboxStatusResponse)
        if not answer.HasField("status"):
            return cri.PodSandboxStatus(id=sandbox, state=cri.SANDBOX_NOTREADY)
        return answer.status

    async def sandboxes(self, labels: dict[str, str] | None = None) -> list[cri.PodSandbox]:
        """All sandboxes with these labels, complete."""
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=labels))
        return await self.lister.all(SANDBOXES, request)

    # -- containers ---------------------------------------------------------------------------------------------------

    async def create_container(self, sandbox: str, config: cri.ContainerConfig, pod: cri.PodSandboxConfig) -> str:
        """Make a container that does not run yet; its id."""
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=pod)
        answer = await self._call("create_container", RUNTIME + "CreateContainer", request, cri.CreateContainerResponse)
        return answer.container_id

    async def start_container(self, container: str) -> None:
        """Start a container."""
        request = cri.StartContainerRequest(container_id=container)
        await self._call("start_container", RUNTIME + "StartContainer", request, cri.StartContainerResponse)

    async def stop_container(self, container: str, grace: int) -> None:
        """Stop a container, with SIGKILL after `grace` seconds (0: now); a missing one is no error."""
        request = cri.StopContainerRequest(container_id=container, timeout=grace)
        await self._gone_is_well("stop_container", RUNTIME + "StopContainer", request, self._seconds + grace)

    async def remove_container(self, container: str) -> None:
        """Remove a container; a missing one is no error."""
        request = cri.RemoveContainerRequest(container_id=container)
        await self._gone_is_well("remove_container", RUNTIME + "RemoveContainer", request)

    async def container_status(self, container: str) -> cri.ContainerStatus:
        """Read its status; NOT_FOUND if it is gone."""
        request = cri.ContainerStatusRequest(container_id=container)
        method = RUNTIME + "ContainerStatus"
        answer = await self._call("container_status", method, request, cri.ContainerStatusResponse)
        if not answer.HasField("status"):
            return cri.ContainerStatus(id=container, state=cri.CONTAINER_UNKNOWN)
        return answer.status

    async def containers(self, labels: dict[str, str] | None = None) -> list[cri.Container]:
        """All containers with these labels, complete."""
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=labels))
        return await self.lister.all(CONTAINERS, request)

    async def container_stats(self) -> list[cri.ContainerStats]:
        """What all containers use, complete; UNIMPLEMENTED where it is not counted."""
        return await self.lister.all(CONTAINER_STATS, cri.ListContainerStatsRequest(filter=cri.ContainerStatsFilter()))

    async def update_container_resources(self, container: str, resources: cri.LinuxContainerResources) -> None:
        """Change what a running container may use; what is 0 stays."""
        request = cri.UpdateContainerResourcesRequest(container_id=container, linux=resources)
        method = RUNTIME + "UpdateContainerResources"
        await self._call("update_container_resources", method, request, cri.UpdateContainerResourcesResponse)

    async def exec_sync(self, container: str, command: list[str], seconds: float) -> cri.ExecSyncResponse:
        """Run a command in it to its end, at most `seconds` (0: as long as it takes)."""
        request = cri.ExecSyncRequest(container_id=container, cmd=command, timeout=round(seconds))
        limit = seconds + 10 if seconds else PULL_SECONDS
        return await self._call("exec_sync", RUNTIME + "ExecSync", request, cri.ExecSyncResponse, limit)

    async def reopen_log(self, container: str) -> None:
        """Its log was moved away: write into a new file."""
        request = cri.ReopenContainerLogRequest(container_id=container)
        method = RUNTIME + "ReopenContainerLog"
        await self._call("reopen_container_log", method, request, cri.ReopenContainerLogResponse)

    async def checkpoint(self, container: str, location: str, seconds: int) -> None:
        """Write its state to a file, within `seconds` (0: as long as a call may take)."""
        request = cri.CheckpointContainerRequest(container_id=container, location=location, timeout=seconds)
        method = RUNTIME + "CheckpointContainer"
        await self._call("checkpoint_container", method, request, cri.CheckpointContainerResponse, seconds)

    async def exec_url(self, request: cri.ExecRequest) -> str:
        """The URL of the streams of a command in a container."""
        return (await self._call("exec", RUNTIME + "Exec", request, cri.ExecResponse)).url

    async def attach_url(self, request: cri.AttachRequest) -> str:
        """The URL of the streams of a container's process."""
        return (await self._call("attach", RUNTIME + "Attach", request, cri.AttachResponse)).url

    async def port_forward_url(self, request: cri.PortForwardRequest) -> str:
        """The URL of a sandbox's forwarded ports."""
        return (await self._call("port_forward", RUNTIME + "PortForward", request, cri.PortForwardResponse)).url

    # -- images -------------------------------------------------------------------------------------------------------

    async def image(self, name: str) -> cri.Image | None:
        """Find an image on this machine."""
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=name))
        answer = await self._call("image_status", IMAGES + "ImageStatus", request, cri.ImageStatusResponse)
        return answer.image if answer.HasField("image") else None

    async def pull(self, name: str, auth: cri.AuthConfig | None, pod: cri.PodSandboxConfig) -> str:
        """Pull an image; its reference."""
        request = cri.PullImageRequest(image=cri.ImageSpec(image=name), auth=auth, sandbox_config=pod)
        method = IMAGES + "PullImage"
        return (await self._call("pull_image", method, request, cri.PullImageResponse, PULL_SECONDS)).image_ref

    async def images(self) -> list[cri.Image]:
        """All images, complete."""
        return await self.lister.all(IMAGE_LIST, cri.ListImagesRequest(filter=cri.ImageFilter()))

    async def remove_image(self, image: str) -> None:
        """Remove an image; a missing one is no error."""
        request = cri.RemoveImageRequest(image=cri.ImageSpec(image=image))
        await self._gone_is_well("remove_image", IMAGES + "RemoveImage", request)

    async def image_directory(self) -> str:
        """A directory on the file system of images; empty where the runtime does not tell it."""
        try:
            method, request = IMAGES + "ImageFsInfo", cri.ImageFsInfoRequest()
            answer = await self._call("image_fs_info", method, request, cri.ImageFsInfoResponse)
        except CriError as error:
            if error.code != "UNIMPLEMENTED":
                raise
            return ""
        return answer.image_filesystems[0].fs_id.mountpoint if answer.image_filesystems else ""

    async def sandbox_image(self) -> str:
        """The name of the image that sandboxes have; empty where the runtime does not tell it."""
        request = cri.StatusRequest(verbose=True)
        answer = await self._call("status", RUNTIME + "Status", request, cri.StatusResponse)
        try:
            found = json.loads(answer.info.get("config", "{}"))
        except ValueError:
            return ""
        return str(found.get("sandboxImage", "")) if isinstance(found, dict) else ""

    # -- the way ------------------------------------------------------------------------------------------------------

    async def unary(self, operation: str, method: str, request: bytes, seconds: float = 0) -> bytes:
        """One call, bytes for bytes."""
        import grpc.aio

        began, code = time.monotonic(), "OK"
        try:
            call: Any = self._open().unary_unary(method)
            answer: bytes = await call(request, timeout=seconds or self._seconds)
            return answer
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            raise self._failure(operation, error) from error
        finally:
            self._observe(operation, time.monotonic() - began, code)

    async def stream(self, operation: str, method: str, request: bytes) -> AsyncIterator[bytes]:
        """The answers of a stream, all of it within the time of one call."""
        import grpc.aio

        began, code = time.monotonic(), "OK"
        call: Any = self._open().unary_stream(method)(request, timeout=self._seconds)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            raise self._failure(operation, error) from error
        finally:
            call.cancel()
            self._observe(operation, time.monotonic() - began, code)

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise CriError("connect", "CANCELLED", "the agent is stopping")
        return self._channel

    def _failure(self, operation: str, error: grpc.aio.AioRpcError) -> CriError:
        code, details = error.code().name, error.details() or ""
        if code == "UNAVAILABLE":
            self.lister.forget()
            details = f"{self.endpoint}: {details}"
        return CriError(operation, code, details)

    async def _call(
        self, operation: str, method: str, request: Message, kind: type[Answer], seconds: float = 0
    ) -> Answer:
        answer = await self.unary(operation, method, request.SerializeToString(), seconds)
        try:
            return decode(kind, answer)
        except MessageError as error:
            raise CriError(operation, "INTERNAL", f"the runtime's answer can not be read: {error}") from error

    async def _gone_is_well(self, operation: str, method: str, request: Message, seconds: float = 0) -> None:
        try:
            await self.unary(operation, method, request.SerializeToString(), seconds)
        except CriError as error:
            if not error.is_gone:
                raise
