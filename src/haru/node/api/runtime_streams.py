"""Container logs, exec, attach and port-forward by the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of, statuses_of
from haru.node.api.log_files import read_log
from haru.node.api.sources import ContainerRef, LogOptions, StreamOptions, StreamRequest
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import CONTAINER_NAME, POD_UID
from haru.proto import cri_pb2 as cri
from haru.secure_serving.http import HttpError
from haru.tls import client_context
from haru.upgrade_proxy import UpgradeRequest, UpgradeResponse, Upstream, open_upgrade

_NOT_PULLED = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
"""What is told of reasons why a container waits."""


class RuntimeStreams:
    """`Logs` and `Streams` of one runtime. `checkpoints` is where they are written."""

    def __init__(self, runtime: RuntimeClient, checkpoints: Path) -> None:
        self._runtime, self._checkpoints = runtime, checkpoints

    # -- logs ---------------------------------------------------------------------------------------------------------

    async def read(self, pod: Obj, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """A container's log, piece by piece. Raises `HttpError` before the first."""
        starts = await self._starts(pod, container)
        name = pod["metadata"]["name"]
        if options.previous:
            if len(starts) < 2:
                raise HttpError(400, f'previous terminated container "{container}" in pod "{name}" not found')
            chosen = starts[1]
        elif not starts:
            raise HttpError(400, f'container "{container}" in pod "{name}" is {without_log(pod, container)}')
        else:
            chosen = starts[0]
        try:
            status = await self._runtime.container_status(chosen.id)
        except CriError as error:
            raise HttpError(500, str(error)) from error
        if not status.log_path:
            raise HttpError(500, f'container "{container}" in pod "{name}" has no log')
        path = Path(status.log_path)
        if not await asyncio.to_thread(path.is_file):
            raise HttpError(500, f"failed to try resolving symlinks in path {path}: no such file")
        return read_log(path, options, lambda: self._is_running(chosen.id))

    async def _is_running(self, id_: str) -> bool:
        try:
            return (await self._runtime.container_status(id_)).state in (cri.CONTAINER_CREATED, cri.CONTAINER_RUNNING)
        except CriError as error:
            # A runtime that is away for a moment has ended nothing.
            return not error.is_gone

    async def _starts(self, pod: Obj, container: str) -> list[cri.Container]:
        """The starts of a container, the newest first."""
        labels = {POD_UID: pod["metadata"]["uid"], CONTAINER_NAME: container}
        try:
            found = await self._runtime.containers(labels)
        except CriError as error:
            raise HttpError(500, str(error)) from error
        return sorted(found, key=lambda one: (one.metadata.attempt, one.created_at), reverse=True)

    # -- ways into containers -----------------------------------------------------------------------------------------

    async def open_exec(self, container: ContainerRef, options: StreamOptions, asked: StreamRequest) -> UpgradeResponse:
        """A command in a container. Raises `HttpError`, OSError."""
        request = cri.ExecRequest(
            container_id=await self._running(container),
            cmd=options.command,
            tty=options.tty,
            stdin=options.stdin,
            stdout=options.stdout,
            stderr=options.stderr,
        )
        return await _open(await self._url(self._runtime.exec_url(request)), asked)

    async def open_attach(
        self, container: ContainerRef, options: StreamOptions, asked: StreamRequest
    ) -> UpgradeResponse:
        """A container's own process. Raises `HttpError`, OSError."""
        id_ = await self._running(container)
        specs = containers_of(container.pod["spec"])
        tty = any(one["name"] == container.container and one.get("tty") for one in specs)
        stderr = options.stderr and not tty
        request = cri.AttachRequest(
            container_id=id_, stdin=options.stdin, tty=tty, stdout=options.stdout, stderr=stderr
        )
        return await _open(await self._url(self._runtime.attach_url(request)), asked)

    async def open_ports(self, container: ContainerRef, ports: Sequence[int], asked: StreamRequest) -> UpgradeResponse:
        """Ports of a pod. Raises `HttpError`, OSError."""
        try:
            found = await self._runtime.sandboxes({POD_UID: container.pod["metadata"]["uid"]})
        except CriError as error:
            raise HttpError(500, str(error)) from error
        ready = [one for one in found if one.state == cri.SANDBOX_READY]
        if not ready:
            raise HttpError(500, "the pod has no sandbox that is ready")
        newest = max(ready, key=lambda one: one.created_at)
        request = cri.PortForwardRequest(pod_sandbox_id=newest.id, port=ports)
        return await _open(await self._url(self._runtime.port_forward_url(request)), asked)

    async def run(self, container: ContainerRef, command: Sequence[str]) -> bytes:
        """Run a command to its end and return its output. Raises `HttpError`."""
        try:
            answer = await self._runtime.exec_sync(await self._running(container), list(command), 0)
        except CriError as error:
            raise HttpError(500, error.details) from error
        said = answer.stdout + answer.stderr
        if answer.exit_code:
            text = said.decode("utf-8", "replace")
            raise HttpError(500, f"command '{' '.join(command)}' exited with {answer.exit_code}: {text}")
        return said

    async def checkpoint(self, container: ContainerRef, seconds: int) -> str:
        """Write a container's state to a file; its path. Raises `HttpError`, OSError."""
        id_, meta = await self._running(container), container.pod["metadata"]
        self._checkpoints.mkdir(parents=True, exist_ok=True, mode=0o700)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        file = f"checkpoint-{meta['name']}_{meta['namespace']}-{container.container}-{stamp}.tar"
        path = str(self._checkpoints / file)
        try:
            await self._runtime.checkpoint(id_, path, seconds)
        except CriError as error:
            raise OSError(error.details) from error
        return path

    async def _running(self, container: ContainerRef) -> str:
        starts = await self._starts(container.pod, container.container)
        running = next((one for one in starts if one.state == cri.CONTAINER_RUNNING), None)
        if running is None:
            raise HttpError(404, f'container not found ("{container.container}")')
        return running.id

    async def _url(self, asked: object) -> str:
        try:
            return str(await asked)  # type: ignore[misc]
        except CriError as error:
            raise HttpError(500, error.details) from error


def without_log(pod: Obj, container: str) -> str:
    """Say by its status what a container is that the runtime has no start of, as kubelets do."""
    known = statuses_of(pod).get(container)
    if known is None:
        return "not available"
    state, last = known.get("state") or {}, known.get("lastState") or {}
    if "terminated" in state or "terminated" in last:
        return "terminated"
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    return f"waiting to start: {_NOT_PULLED.get(reason, reason)}"


async def _open(url: str, asked: StreamRequest) -> UpgradeResponse:
    parts = urlsplit(url)
    host, tls = parts.hostname or "", None
    if parts.scheme == "https":
        # The runtime told where over its own socket; its certificate is one it made itself.
        tls = client_context(insecure=True)
    port = parts.port or (443 if tls else 80)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = [("host", parts.netloc), *asked.headers]
    return await open_upgrade(Upstream(host, port, tls), UpgradeRequest(asked.method, target, headers))
