"""The files of a volume that is made from objects: config maps, secrets, the downward API, and projections of them.

Source: the volume sources of v1 as documented; modes are octal permissions as an integer, paths are relative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of
from haru.kube.pod_environment.environment import ReferencedObjects, config_map_data, secret_data
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts, field_value, resource_value

DEFAULT_MODE = 0o644
TOKEN_MODE = 0o600


@dataclass(frozen=True, slots=True)
class File:
    """What is in a file, and who may read it."""

    data: bytes
    mode: int = DEFAULT_MODE
    owner: int | None = None
    """A user id, for tokens."""


Files = dict[str, File]
Token = Callable[[Mapping[str, Any]], str]
"""The token for a `serviceAccountToken` projection, which is there already."""
DEFAULT_TOKEN_SECONDS: Final = 3600
_LONGEST_AGE: Final = 24 * 3600.0
_SPEAKING: Final = frozenset({"command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"})
"""Where a container says what is run in it."""
OBJECT_SOURCES: Final = ("configMap", "secret", "downwardAPI", "projected")


def files_of(
    pod: Obj, volume: Mapping[str, Any], sources: ReferencedObjects, facts: DownwardFacts, token: Token
) -> Files | None:
    """The files of a volume; None for one that is not made from objects. Raises `ConfigError`."""
    if source := volume.get("configMap"):
        return _config_map(source, source.get("name", ""), sources, _mode(source))
    if source := volume.get("secret"):
        return _secret(source, source.get("secretName", ""), sources, _mode(source))
    if "downwardAPI" in volume:
        return _downward(pod, volume["downwardAPI"] or {}, facts, _mode(volume["downwardAPI"] or {}))
    if "projected" in volume:
        return _projected(pod, volume["projected"] or {}, sources, facts, token)
    return None


def is_made_of_objects(volume: Mapping[str, Any]) -> bool:
    """Whether its files are copies of what the API has: no container may write them."""
    return any(field in volume for field in OBJECT_SOURCES)


def in_memory(volume: Mapping[str, Any]) -> bool:
    """Whether its files belong into memory only."""
    if (volume.get("emptyDir") or {}).get("medium") == "Memory":
        return True
    return any(field in volume for field in ("secret", "downwardAPI", "projected"))


def token_requests(pod: Obj) -> list[Mapping[str, Any]]:
    """The tokens that the pod's volumes are to have."""
    return [
        source["serviceAccountToken"]
        for volume in pod["spec"].get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
        if source.get("serviceAccountToken")
    ]


def token_key(request: Mapping[str, Any]) -> str:
    """The same for requests that one token answers."""
    return f"{request.get('expirationSeconds') or DEFAULT_TOKEN_SECONDS}/{request.get('audience') or ''}"


def renewal_time(expires: float, seconds: float) -> float:
    """When a token is to be renewed that was good for so many seconds: after 80 % of them, or a day.

    Source: the kubelet's token manager, without its jitter.
    """
    return expires - seconds + min(0.8 * seconds, _LONGEST_AGE)


def asks_for_tokens(pod: Obj, *more: str) -> bool:
    """Whether the containers of a pod, or one of these texts, name a place where a token is mounted."""
    spec = pod.get("spec") or {}
    speaking = [one for one in containers_of(spec) if more or not _SPEAKING.isdisjoint(one)]
    if not speaking:
        return False
    names = {volume["name"] for volume in spec.get("volumes") or () if token_requests({"spec": {"volumes": [volume]}})}
    for container in speaking:
        text = str((more, [value for key, value in container.items() if key in _SPEAKING or key == "env"]))
        mounts = container.get("volumeMounts") or ()
        if any(one["mountPath"] in text for one in mounts if one["name"] in names):
            return True
    return False


def references(pod: Obj) -> tuple[set[str], set[str]]:
    """Names of the config maps and secrets that the pod's environment and volumes speak of."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for origin in container.get("envFrom") or ():
            config_maps.add((origin.get("configMapRef") or {}).get("name", ""))
            secrets.add((origin.get("secretRef") or {}).get("name", ""))
        for variable in container.get("env") or ():
            origin = variable.get("valueFrom") or {}
            config_maps.add((origin.get("configMapKeyRef") or {}).get("name", ""))
            secrets.add((origin.get("secretKeyRef") or {}).get("name", ""))
    for volume in spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            config_maps.add((source.get("configMap") or {}).get("name", ""))
            secret = source.get("secret") or {}
            secrets.add(secret.get("secretName") or secret.get("name", ""))
    secrets.update(one.get("name", "") for one in spec.get("imagePullSecrets") or ())
    return config_maps - {""}, secrets - {""}


def _mode(source: Mapping[str, Any]) -> int:
    mode = source.get("defaultMode")
    return DEFAULT_MODE if mode is None else int(mode)


def _config_map(source: Mapping[str, Any], name: str, sources: ReferencedObjects, mode: int) -> Files:
    found = sources.config_map(name)
    if found is None:
        return _absent(source, f'configmap "{name}" not found')
    return _selected(source, config_map_data(found), mode, "configmap references non-existent config key")


def _secret(source: Mapping[str, Any], name: str, sources: ReferencedObjects, mode: int) -> Files:
    found = sources.secret(name)
    if found is None:
        return _absent(source, f'secret "{name}" not found')
    return _selected(source, secret_data(found), mode, "references non-existent secret key")


def _absent(source: Mapping[str, Any], message: str) -> Files:
    if not source.get("optional"):
        raise ConfigError(message)
    return {}


def _selected(source: Mapping[str, Any], data: Mapping[str, bytes], mode: int, missing: str) -> Files:
    items = source.get("items")
    if not items:
        return {key: File(value, mode) for key, value in data.items()}
    files: Files = {}
    for item in items:
        if item["key"] in data:
            files[item["path"]] = File(data[item["key"]], mode if item.get("mode") is None else item["mode"])
        elif not source.get("optional"):
            raise ConfigError(f"{missing}: {item['key']}")
    return files


def _downward(pod: Obj, source: Mapping[str, Any], facts: DownwardFacts, mode: int) -> Files:
    files: Files = {}
    for item in source.get("items") or ():
        own = mode if item.get("mode") is None else item["mode"]
        if ref := item.get("fieldRef"):
            text = field_value(pod, ref["fieldPath"], facts)
        else:
            ref = item["resourceFieldRef"]
            text = resource_value(pod, {"name": ref.get("containerName", "")}, ref, facts)
        files[item["path"]] = File(text.encode(), own)
    return files


def _projected(
    pod: Obj, volume: Mapping[str, Any], sources: ReferencedObjects, facts: DownwardFacts, token: Token
) -> Files:
    """The files of all sources, a later one over an earlier one. Raises `ConfigError` with what every source lacks."""
    files: Files = {}
    problems: dict[str, None] = {}
    for source in volume.get("sources") or ():
        try:
            files |= _source(pod, source, _mode(volume), sources, facts, token)
        except ConfigError as error:
            problems[str(error)] = None
    if problems:
        raise ConfigError(next(iter(problems)) if len(problems) == 1 else f"[{', '.join(problems)}]")
    return files


def _source(
    pod: Obj,
    source: Mapping[str, Any],
    mode: int,
    sources: ReferencedObjects,
    facts: DownwardFacts,
    token: Token,
) -> Files:
    """The files of one source of a projection. Raises `ConfigError`."""
    if one := source.get("configMap"):
        return _config_map(one, one.get("name", ""), sources, mode)
    if one := source.get("secret"):
        return _secret(one, one.get("name", ""), sources, mode)
    if "downwardAPI" in source:
        return _downward(pod, source["downwardAPI"] or {}, facts, mode)
    if one := source.get("serviceAccountToken"):
        user = _only_user(pod)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        own = mode if user is None and group is None else TOKEN_MODE
        return {one["path"]: File(token(one).encode(), own, user)}
    if not source:
        return {}  # of a kind that the API server does not serve, and has dropped
    raise ConfigError(f"projected source {', '.join(source)} is not supported on this node")


def _only_user(pod: Obj) -> int | None:
    """The one user that all containers run as, if the pod says so."""
    spec = pod["spec"]
    default = (spec.get("securityContext") or {}).get("runAsUser")
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    users = {(one.get("securityContext") or {}).get("runAsUser", default) for one in containers}
    return users.pop() if len(users) == 1 else None
