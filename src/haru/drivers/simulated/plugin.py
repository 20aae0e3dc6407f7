"""Simulated cards on a real node: container edits, and health by annotation.

A container gets the environment variable `HARU_DEVICE_<NAME>` with what the device is (its UUID, or its pool and name)
and a plain file with its description at `/dev/haru/<name>`. Annotations of the Node speak for the hardware:
`simulated.haru.dev/device-taints` as in `taints`, and `simulated.haru.dev/device-health: gpu-3=Unhealthy:too hot`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from haru.drivers.library import (
    Allocated,
    ClaimToPrepare,
    ConfigError,
    DeviceError,
    Edits,
    Entry,
    Health,
    Mount,
    Pool,
    ReadyDevice,
    Slice,
)
from haru.drivers.simulated.device_health import HEALTH_ANNOTATION, HEALTHY, parse_device_health
from haru.drivers.simulated.profiles import Profile
from haru.drivers.simulated.slices import resource_slices, taints_of
from haru.drivers.simulated.taints import TAINTS_ANNOTATION, parse_device_taints
from haru.files import write_whole

CONTAINER_DIRECTORY: Final = "/dev/haru"
GROUP: Final = "simulated.haru.dev/v1alpha1"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def pool_of(profile: Profile, node_name: str) -> Pool:
    """The pool of a node of this profile, in the slices that the simulated driver publishes elsewhere, too."""
    made = resource_slices(profile, node_name, "", {}, 1)
    specs = [obj["spec"] for obj in made if obj["spec"]["driver"] == profile.driver]
    return Pool([Slice(spec.get("devices") or (), spec.get("sharedCounters") or ()) for spec in specs])


class SimulatedCards:
    """The plugin: `directory` holds a file for each device that is in use."""

    def __init__(self, pool: Pool, directory: Path) -> None:
        self._devices = {device["name"]: device for one in pool.slices for device in one.devices}
        self._directory = directory

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        """A file for each device."""
        return [self._prepare(claim, device) for device in claim.devices]

    def _prepare(self, claim: ClaimToPrepare, allocated: Allocated) -> ReadyDevice:
        device = self._devices.get(allocated.device)
        if device is None:
            raise DeviceError(allocated.device, "this node has none of that name")
        variables = _variables(allocated)
        attributes = device.get("attributes") or {}
        told = {"name": allocated.device, "pool": allocated.pool, "claim": claim.uid, "attributes": attributes}
        path = self._directory / claim.uid / f"{allocated.device}.json"
        write_whole(path, orjson.dumps(told), 0o644, parents=True)
        identity = (attributes.get("uuid") or {}).get("string") or f"{allocated.pool}/{allocated.device}"
        name = re.sub(r"[^A-Z0-9]", "_", allocated.device.upper())
        env = (f"HARU_DEVICE_{name}={identity}", *(f"{key}={value}" for key, value in variables.items()))
        mount = Mount(str(path), f"{CONTAINER_DIRECTORY}/{allocated.device}", ("ro", "bind"))
        return ReadyDevice(allocated, Edits(env, (mount,)), attributes=attributes)

    async def unprepare(self, claim: Entry) -> None:
        """Remove the files of a claim."""
        directory = self._directory / claim.uid
        for path in directory.glob("*"):
            path.unlink(missing_ok=True)
        if directory.exists():
            directory.rmdir()


def _variables(allocated: Allocated) -> dict[str, str]:
    """Environment variables that the claim's configuration asks for: kind `SimulatedConfig`, field `env`."""
    found: dict[str, str] = {}
    for parameters in allocated.parameters:
        if (parameters.get("apiVersion"), parameters.get("kind")) != (GROUP, "SimulatedConfig"):
            kind = f"{parameters.get('apiVersion')} {parameters.get('kind')}"
            raise ConfigError("opaque.parameters", kind, f"write apiVersion {GROUP} and kind SimulatedConfig")
        env = parameters.get("env") or {}
        for key, value in env.items() if isinstance(env, dict) else ():
            if not _VARIABLE.match(key) or not isinstance(value, str):
                raise ConfigError(f"opaque.parameters.env[{key}]", value, "write names of variables, and texts")
            found[key] = value
        if not isinstance(env, dict):
            raise ConfigError("opaque.parameters.env", env, "write a mapping of names to texts")
    return found


def health_of(annotations: Mapping[str, str], devices: Collection[str], pool: str) -> dict[tuple[str, str], Health]:
    """How the devices of a node are, by its annotations. ValueError names the entry at fault."""
    taints = parse_device_taints(annotations.get(TAINTS_ANNOTATION, ""), devices)
    states = parse_device_health(annotations.get(HEALTH_ANNOTATION, ""), devices)
    found: dict[tuple[str, str], Health] = {}
    for device in devices:
        state, message = states.get(device, (HEALTHY, ""))
        given = tuple(taints_of(device, taints))
        if given or device in states:
            found[pool, device] = Health(state, message, taints=given)
    return found
