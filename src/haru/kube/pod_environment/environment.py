"""The environment of a container: literals, references of every kind, whole config maps, and `$(NAME)` in texts.

Source: v1 EnvVar and EnvFromSource, and the expansion of references as documented.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts, field_value, resource_value

Lookup = Callable[[str], Obj | None]
_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")


@dataclass(frozen=True, slots=True)
class ReferencedObjects:
    """Objects of the pod's namespace by name; None for one that does not exist."""

    config_map: Lookup
    secret: Lookup
    file_key: Callable[[Mapping[str, Any]], bytes | None] | None = None
    """The value that a `fileKeyRef` refers to, None for an optional one that is not there; raises `ConfigError`."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced by what is known; the unknown stays as it is, `$$` is a dollar."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        return values.get(found[2], found[0])

    return _REFERENCE.sub(replaced, text)


def environment(
    pod: Obj,
    container: Mapping[str, Any],
    sources: ReferencedObjects,
    facts: DownwardFacts,
    given: Sequence[tuple[str, str]] = (),
) -> dict[str, bytes]:
    """Name to value, in order; `given` are variables that the pod may override. Raises `ConfigError`."""
    values: dict[str, bytes] = {name: value.encode() for name, value in given}
    for source in container.get("envFrom") or ():
        values.update(_whole(pod, source, sources))
    for variable in container.get("env") or ():
        known = {name: value.decode(errors="replace") for name, value in values.items()}
        if variable.get("valueFrom"):
            found = _referenced(pod, container, variable, sources, facts)
            if found is not None:
                values[variable["name"]] = found
        else:
            values[variable["name"]] = expand(variable.get("value", ""), known).encode()
    return values


def command_of(container: Mapping[str, Any], values: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """Command and arguments with their references replaced."""
    known = {name: value.decode(errors="replace") for name, value in values.items()}
    command = [expand(part, known) for part in container.get("command") or ()]
    return command, [expand(part, known) for part in container.get("args") or ()]


def config_map_data(config_map: Obj) -> dict[str, bytes]:
    """Every key of a config map."""
    texts = {key: value.encode() for key, value in (config_map.get("data") or {}).items()}
    return texts | {key: base64.b64decode(value) for key, value in (config_map.get("binaryData") or {}).items()}


def secret_data(secret: Obj) -> dict[str, bytes]:
    """Every key of a secret."""
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def _whole(pod: Obj, source: Mapping[str, Any], sources: ReferencedObjects) -> dict[str, bytes]:
    """All keys of an envFrom source, with its prefix."""
    prefix = source.get("prefix", "")
    if ref := source.get("configMapRef"):
        found = _object(pod, "configmap", ref, sources.config_map)
        data = config_map_data(found) if found is not None else {}
    elif ref := source.get("secretRef"):
        found = _object(pod, "secret", ref, sources.secret)
        data = secret_data(found) if found is not None else {}
    else:
        data = {}
    return {prefix + key: data[key] for key in sorted(data) if key and "=" not in key}


def _referenced(
    pod: Obj,
    container: Mapping[str, Any],
    variable: Mapping[str, Any],
    sources: ReferencedObjects,
    facts: DownwardFacts,
) -> bytes | None:
    """The value of a reference; None for an optional one that is not there."""
    origin = variable["valueFrom"]
    if ref := origin.get("fieldRef"):
        return field_value(pod, ref["fieldPath"], facts).encode()
    if ref := origin.get("resourceFieldRef"):
        return resource_value(pod, container, ref, facts).encode()
    if ref := origin.get("configMapKeyRef"):
        return _key(pod, "ConfigMap", ref, _object(pod, "configmap", ref, sources.config_map), config_map_data)
    if ref := origin.get("secretKeyRef"):
        return _key(pod, "Secret", ref, _object(pod, "secret", ref, sources.secret), secret_data)
    if sources.file_key is not None and (ref := origin.get("fileKeyRef")):
        return sources.file_key(ref)
    kinds = ", ".join(origin) or "nothing"
    raise ConfigError(f"env {variable['name']}: valueFrom {kinds} is not supported on this node")


def _object(pod: Obj, what: str, ref: Mapping[str, Any], lookup: Lookup) -> Obj | None:
    found = lookup(ref.get("name", ""))
    if found is None and not ref.get("optional"):
        raise ConfigError(f'{what} "{ref.get("name", "")}" not found')
    return found


def _key(
    pod: Obj, what: str, ref: Mapping[str, Any], found: Obj | None, data: Callable[[Obj], dict[str, bytes]]
) -> bytes | None:
    if found is None:
        return None
    value = data(found).get(ref["key"])
    if value is None and not ref.get("optional"):
        where = f"{pod['metadata'].get('namespace', '')}/{ref.get('name', '')}"
        raise ConfigError(f"couldn't find key {ref['key']} in {what} {where}")
    return value
