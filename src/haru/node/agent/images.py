"""Image pulls by imagePullPolicy, with back-off after failures.

Source: imagePullPolicy and the reasons ErrImageNeverPull, ErrImagePull, ImagePullBackOff and InvalidImageName, as
documented; pull secrets of the types dockerconfigjson and dockercfg.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from haru.client.events import EventRecorder, EventType
from haru.kube.container_events import container_of, image_is_present, image_was_pulled
from haru.kube.container_restarts import CrashLoop
from haru.kube.image_names import ImageNameError, parse_image_name
from haru.kube.meta import Obj
from haru.kube.pod_environment.environment import ReferencedObjects, secret_data
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.proto import cri_pb2 as cri

PULL_ERROR: Final = "ErrImagePull"
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


class StartError(Exception):
    """A container could not be started: `reason` and the text belong into its status."""

    def __init__(self, reason: str, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.wait = reason, wait


class ImageError(StartError):
    """An image is not there: the event about the container has the reason, and another one the text."""


def pull_policy(container: Mapping[str, Any]) -> str:
    """The container's imagePullPolicy; without one Always for the tag latest."""
    policy = container.get("imagePullPolicy")
    if policy:
        return str(policy)
    last = container.get("image", "").rsplit("/", 1)[-1]
    return "Always" if "@" not in last and (":" not in last or last.endswith(":latest")) else "IfNotPresent"


def registry_of(image: str) -> str:
    """The host that an image is pulled from."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB[0]


def credentials(image: str, secrets: list[Obj]) -> list[cri.AuthConfig]:
    """What the pull secrets have for an image, in their order."""
    host = registry_of(image)
    found = []
    for secret in secrets:
        data = secret_data(secret)
        text = data.get(".dockerconfigjson") or data.get(".dockercfg")
        for name, entry in _entries(text or b"{}"):
            server = name.removeprefix("https://").removeprefix("http://").partition("/")[0]
            if server == host or (host in _DOCKER_HUB and server in _DOCKER_HUB):
                # What makes no sense is no credential: another secret may have one.
                with contextlib.suppress(ValueError, TypeError):
                    found.append(_auth(entry, server))
    return found


def _entries(text: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The registries that a pull secret names, with what it says of each; none of what cannot be read."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return
    entries = parsed.get("auths", parsed) if isinstance(parsed, dict) else None
    if isinstance(entries, dict):
        yield from ((name, entry) for name, entry in entries.items() if isinstance(entry, dict))


def _auth(entry: Mapping[str, Any], server: str) -> cri.AuthConfig:
    user, password = entry.get("username", ""), entry.get("password", "")
    if entry.get("auth") and not user:
        text = base64.b64decode("".join(str(entry["auth"]).split()), validate=True)
        user, _, password = text.decode(errors="replace").partition(":")
    return cri.AuthConfig(username=user, password=password, server_address=server)


def _pull_secrets(pod: Obj) -> list[str]:
    return [one["name"] for one in pod["spec"].get("imagePullSecrets") or () if one.get("name")]


class _Pulls:
    """The images that one pod could not have: when and why not, and how long each waits."""

    def __init__(self) -> None:
        self.failed: dict[str, float] = {}
        self.problems: dict[str, str] = {}
        self.pauses = CrashLoop()


class ImageManager:
    """Images of one runtime."""

    def __init__(self, runtime: RuntimeClient, recorder: EventRecorder) -> None:
        self._runtime, self._recorder = runtime, recorder
        self._pulls: dict[str, _Pulls] = {}

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._pulls.pop(uid, None)

    async def ensure(
        self, pod: Obj, container: Mapping[str, Any], sources: ReferencedObjects, sandbox: cri.PodSandboxConfig
    ) -> cri.Image:
        """The image of a container, pulled if its policy says so. Raises `ImageError`."""
        name, policy = container["image"], pull_policy(container)
        about = container_of(pod, container["name"]) if "name" in container else pod
        self._tell_missing_secrets(pod, sources)
        try:
            parse_image_name(name)
        except ImageNameError as error:
            message = f'Failed to apply default image tag "{name}": {error}'
            self._tell(about, "Warning", "InspectFailed", message)
            raise ImageError("InvalidImageName", message) from error
        present = None if policy == "Always" else await self._present(name, about)
        if policy == "Never":
            if present is None:
                message = f'Container image "{name}" is not present with pull policy of Never'
                self._tell(about, "Warning", "ErrImageNeverPull", message)
                raise ImageError("ErrImageNeverPull", message)
        elif present is None:
            return await self._pull(pod, about, name, sources, sandbox)
        assert present is not None
        self._tell(about, "Normal", "Pulled", image_is_present(name))
        return present

    async def _present(self, name: str, about: Obj) -> cri.Image | None:
        try:
            return await self._runtime.image(name)
        except CriError as error:
            message = f'Failed to inspect image "": {error}'
            self._tell(about, "Warning", "InspectFailed", message)
            raise ImageError("ImageInspectError", message) from error

    async def _pull(
        self, pod: Obj, about: Obj, name: str, sources: ReferencedObjects, sandbox: cri.PodSandboxConfig
    ) -> cri.Image:
        uid, now = pod["metadata"]["uid"], time.monotonic()
        pulls = self._pulls.get(uid) or _Pulls()
        wait, _ = pulls.pauses.wait(name, pulls.failed.get(name, 0.0), now)
        if wait > 0:
            message = f'Back-off pulling image "{name}"'
            self._tell(about, "Normal", "BackOff", message)
            raise ImageError("ImagePullBackOff", f"{message}: ErrImagePull: {pulls.problems[name]}", wait)
        self._tell(about, "Normal", "Pulling", f'Pulling image "{name}"')
        listed = [sources.secret(one) for one in _pull_secrets(pod)]
        auths: list[cri.AuthConfig | None] = [*credentials(name, [one for one in listed if one is not None])]
        failure = ""
        for auth in auths or [None]:
            try:
                ref = await self._runtime.pull(name, auth, sandbox)
                found = await self._runtime.image(ref)
            except CriError as error:
                failure = error.details
                continue
            if found is not None:
                self._tell(about, "Normal", "Pulled", image_was_pulled(name, time.monotonic() - now, found.size))
                return found
        self._pulls[uid] = pulls
        pulls.pauses.started(name, pulls.failed.get(name, now), now)
        pulls.failed[name], pulls.problems[name] = now, failure
        message = f'Failed to pull image "{name}": {failure}'
        self._tell(about, "Warning", "Failed", message)
        raise ImageError(PULL_ERROR, failure, 0.0)

    def _tell_missing_secrets(self, pod: Obj, sources: ReferencedObjects) -> None:
        if missing := [name for name in _pull_secrets(pod) if sources.secret(name) is None]:
            text = f"Unable to retrieve some image pull secrets ({', '.join(missing)})"
            text += "; attempting to pull the image may not succeed."
            self._tell(pod, "Warning", "FailedToRetrieveImagePullSecret", text)

    def _tell(self, about: Obj, kind: EventType, reason: str, message: str) -> None:
        self._recorder.event(about, kind, reason, message)


def check_user(pod: Obj, container: Mapping[str, Any], image: cri.Image) -> None:
    """A container that must not run as root does not. Raises `StartError`."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    if not context.get("runAsNonRoot"):
        return
    meta = pod["metadata"]
    where = f'pod: "{meta["name"]}_{meta["namespace"]}({meta["uid"]})", container: {container["name"]}'
    user = context.get("runAsUser")
    if user is not None:
        if user == 0:
            raise StartError("CreateContainerConfigError", f"container's runAsUser breaks non-root policy ({where})")
        return
    if image.uid.value == 0 if image.HasField("uid") else not image.username:
        text = f"container has runAsNonRoot and image will run as root ({where})"
        raise StartError("CreateContainerConfigError", text)
    if not image.HasField("uid"):
        text = f"container has runAsNonRoot and image has non-numeric user ({image.username})"
        raise StartError("CreateContainerConfigError", f"{text}, cannot verify user is non-root ({where})")
