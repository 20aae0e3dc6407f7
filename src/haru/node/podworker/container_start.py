"""Starting a container: image, environment, volumes, the container, its postStart hook."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from haru.client.events import EventType
from haru.drivers.cdi.edits import CdiError
from haru.drivers.cdi.reader import DIRECTORIES, CdiFiles
from haru.errors import HaruError
from haru.kube.container_events import CREATED, STARTED, container_of
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.pod_environment.environment import ReferencedObjects, command_of, environment
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts
from haru.kube.pod_environment.volume_files import Token, files_of
from haru.node.agent.context import Context
from haru.node.agent.images import ImageError, ImageManager, StartError, check_user
from haru.node.agent.machine import throttle_paths
from haru.node.cri.errors import CriError
from haru.node.dra.devices import Prepared
from haru.node.podworker.attempts import RUN_ERROR
from haru.node.podworker.config import ContainerInputs, container_config, log_path
from haru.node.podworker.host_names import hosts_text
from haru.node.podworker.observed import SeenSandbox
from haru.node.podworker.plan import container_specs, uses_host_network
from haru.node.podworker.userns import UserNamespaceError
from haru.node.volumes.env_files import file_key
from haru.node.volumes.pod_volumes import MountInputs
from haru.proto import cri_pb2 as cri

__all__ = ["DIRECTORIES", "CdiError", "apply", "runtime_has_cdi"]
_FIRST_CONTAINERD = (1, 7)
_FIRST_CRIO = (1, 23)


def runtime_has_cdi(name: str, version: str) -> bool:
    """Whether the runtime applies CDI devices that it is given by name."""
    found = re.match(r"v?(\d+)\.(\d+)", version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    return number >= (_FIRST_CRIO if name == "cri-o" else _FIRST_CONTAINERD)


def apply(config: cri.ContainerConfig, names: Sequence[str], directories: Sequence[Path] = DIRECTORIES) -> None:
    """Write what devices bring into a container's configuration, in place of their names. Raises `CdiError`."""
    edits = CdiFiles(directories).resolve(names)
    if edits.additional_gids:
        raise CdiError(f"{', '.join(names)}: asks for groups, which needs a runtime with CDI (containerd 1.7 or newer)")
    environment = {one.key: one.value for one in config.envs}
    for text in edits.env:
        key, _, value = text.partition("=")
        environment.pop(key, None)
        environment[key] = value.encode()
    del config.envs[:]
    config.envs.extend(cri.KeyValue(key=key, value=value) for key, value in environment.items())
    for node in edits.device_nodes:
        host_path, permissions = node.host_path or node.path, node.permissions or "rwm"
        config.devices.add(container_path=node.path, host_path=host_path, permissions=permissions)
    for mount in edits.mounts:
        readonly = "ro" in mount.options
        config.mounts.add(container_path=mount.container_path, host_path=mount.host_path, readonly=readonly)
    del config.CDI_devices[:]


_HOOK_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PodInputs:
    """What the containers of a pod are made from: objects, addresses, devices."""

    sources: ReferencedObjects
    facts: DownwardFacts
    prepared: Prepared = field(default_factory=Prepared)


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One start of a container, number `attempt`, in a sandbox that was made with `sandbox_config`."""

    pod: Obj
    container: Mapping[str, Any]
    attempt: int
    sandbox: SeenSandbox
    sandbox_config: cri.PodSandboxConfig
    inputs: PodInputs
    target: str = ""
    """Runtime id of the container whose process namespace it joins."""


class VolumesError(HaruError):
    """Volumes that were not set up, with a text for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class ContainerStarter:
    """Starts the containers of pods on one node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._images = ImageManager(context.runtime, context.recorder)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._images.forget(uid)

    async def volumes(self, pod: Obj, sources: ReferencedObjects, facts: DownwardFacts) -> bool:
        """Set up and update the volumes that containers mount; whether one changed. Raises `VolumesError`."""
        try:
            token = await self._context.objects.tokens(pod)
        except StatusError as error:
            token = _refused(f"failed to fetch token: {error}")
        changed, problems = False, []
        mounted = {mount["name"] for one in container_specs(pod) for mount in one.get("volumeMounts") or ()}
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] not in mounted:
                continue
            try:
                files = files_of(pod, volume, sources, facts, token)
                changed |= await asyncio.to_thread(self._context.volumes.make, pod, volume, files)
            except (ConfigError, ValueError, OSError) as error:
                problems.append(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}')
        if problems:
            raise VolumesError(problems)
        return changed

    async def start(self, request: ContainerStart, created: Callable[[str], None]) -> str:
        """Start a container; return its id, which `created` gets before it starts. Raises `StartError`."""
        id_ = ""
        try:
            id_ = await self._create(request)
            created(id_)
            self._tell(request, "Normal", "Created", CREATED)
            await self._run(request, id_)
        except StartError as error:
            text = error.reason if isinstance(error, ImageError) else str(error)
            # With an id in it no event would be like the one before.
            text = text.replace(id_, request.container["name"]) if id_ else text
            self._tell(request, "Warning", "Failed", f"Error: {text}")
            raise
        self._tell(request, "Normal", "Started", STARTED)
        await self._after_start(request, id_)
        return id_

    async def _create(self, request: ContainerStart) -> str:
        pod, container = request.pod, request.container
        volumes = await self._image_volumes(request)
        image = await self._images.ensure(pod, container, request.inputs.sources, request.sandbox_config)
        check_user(pod, container, image)
        try:
            message = self._config(request, image.id, volumes)
        except (ConfigError, OSError, CdiError, UserNamespaceError) as error:
            raise StartError("CreateContainerConfigError", str(error)) from error
        try:
            return await self._context.runtime.create_container(request.sandbox.id, message, request.sandbox_config)
        except CriError as error:
            raise StartError("CreateContainerError", error.details) from error

    async def _run(self, request: ContainerStart, id_: str) -> None:
        try:
            await self._context.runtime.start_container(id_)
        except CriError as error:
            raise StartError(RUN_ERROR, error.details) from error

    async def _image_volumes(self, request: ContainerStart) -> dict[str, cri.ImageSpec]:
        """Have the images of the volumes that a container mounts, by the volumes' names. Raises `StartError`."""
        pod, found = request.pod, {}
        mounted = {mount["name"] for mount in request.container.get("volumeMounts") or ()}
        for volume in pod["spec"].get("volumes") or ():
            source = volume.get("image")
            if source is None or volume["name"] not in mounted:
                continue
            wanted = {"image": source.get("reference") or "", "imagePullPolicy": source.get("pullPolicy")}
            image = await self._images.ensure(pod, wanted, request.inputs.sources, request.sandbox_config)
            found[volume["name"]] = cri.ImageSpec(image=image.id, user_specified_image=wanted["image"])
        return found

    async def _after_start(self, request: ContainerStart, id_: str) -> None:
        container = request.container
        hook = (container.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        address = next(iter(request.inputs.facts.pod_ips), "")
        answer = await self._context.handler_runner.run_hook(hook, container, id_, address, _HOOK_SECONDS)
        if answer.well:
            return
        # What the hook said may be secret: whoever sees events is not told.
        self._tell(request, "Warning", "FailedPostStartHook", "PostStartHook failed")
        self._tell(request, "Normal", "Killing", "FailedPostStartHook")
        await self._context.runtime.stop_container(id_, 2)
        # It has run: when it starts again is for its crash loop to say.
        raise StartError("PostStartHookError", f"PostStartHook failed: {answer.text}", 0.0)

    def _config(
        self, request: ContainerStart, image_ref: str, volumes: Mapping[str, cri.ImageSpec]
    ) -> cri.ContainerConfig:
        pod, container, inputs = request.pod, request.container, request.inputs
        sources = replace(inputs.sources, file_key=lambda ref: file_key(pod, ref, self._context.volumes))
        values = environment(pod, container, sources, inputs.facts, self._context.service_variables(pod))
        command, args = command_of(container, values)
        known = {name: value.decode(errors="replace") for name, value in values.items()}
        has_recursive = self._context.runtime_info.has_recursive_read_only
        mounts = self._mounts(pod, container, inputs.facts, MountInputs(known, volumes, has_recursive))
        mounts += inputs.prepared.mounts.get(container["name"], ())
        users = self._context.users(pod)
        mapping = cri.IDMapping(host_id=users.host_id, length=users.length) if users is not None else None
        if mapping is not None:
            for mount in mounts:
                for mappings in (mount.uidMappings, mount.gidMappings):
                    del mappings[:]
                    mappings.append(mapping)
        names = list(inputs.prepared.devices.get(container["name"], ()))
        around = ContainerInputs(
            sandbox=request.sandbox.id,
            attempt=request.attempt,
            environment=values,
            command=command,
            args=args,
            mounts=mounts,
            cdi=names,
            amounts=self._context.amounts(pod, container),
            image_ref=image_ref,
            log_path=log_path(container["name"], request.attempt),
            users=mapping,
            target=request.target,
            seccomp=str(self._context.options.seccomp),
            throttle_paths=throttle_paths(),
        )
        message = container_config(pod, container, around)
        if names and not runtime_has_cdi(self._context.runtime_info.name, self._context.runtime_info.version):
            apply(message, names, self._context.options.cdi_directories)
        return message

    def _mounts(
        self,
        pod: Obj,
        container: Mapping[str, Any],
        facts: DownwardFacts,
        inputs: MountInputs,
    ) -> list[cri.Mount]:
        volumes, name = self._context.volumes, container["name"]
        mounts = [volumes.mount(pod, name, mount, inputs) for mount in container.get("volumeMounts") or ()]
        own = volumes.pod(pod["metadata"]["uid"])
        targets = {mount.container_path for mount in mounts}
        if "/etc/hosts" not in targets:
            hosts = _hosts_file(own / "etc-hosts", pod, facts, self._context.options.dns.domain)
            mounts.append(cri.Mount(container_path="/etc/hosts", host_path=str(hosts)))
        # Each start has a file of its own for its last words.
        path = container.get("terminationMessagePath") or "/dev/termination-log"
        directory = own / "containers" / container["name"]
        directory.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in directory.iterdir())
        file = directory / f"{number:08x}"
        file.touch()
        file.chmod(0o666)
        mounts.append(cri.Mount(container_path=path, host_path=str(file)))
        return mounts

    def _tell(self, request: ContainerStart, kind: EventType, reason: str, message: str) -> None:
        about = container_of(request.pod, request.container["name"])
        self._context.recorder.event(about, kind, reason, message)


def _refused(text: str) -> Token:
    """What volumes with tokens get where there are none."""

    def token(request: Mapping[str, Any]) -> str:
        raise ConfigError(text)

    return token


def _hosts_file(file: Path, pod: Obj, facts: DownwardFacts, domain: str) -> Path:
    """Write the pod's /etc/hosts with its own name and its hostAliases."""
    spec = pod["spec"]
    if uses_host_network(pod):
        lines = ["# Kubernetes-managed hosts file (host network).", Path("/etc/hosts").read_text().rstrip("\n")]
    else:
        lines = [hosts_text(pod, facts.pod_ips, domain)]
    if spec.get("hostAliases"):
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join([alias["ip"], *alias.get("hostnames", ())]) for alias in spec["hostAliases"]]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o644)
    return file
