"""CustomResourceDefinitions: what is filled in, and which names one may have.

Source: apiextensions.k8s.io/v1 defaulting and its naming controller, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from haru.kube.meta import Obj, has_condition, value_at

GROUP = "apiextensions.k8s.io"
PLURAL = "customresourcedefinitions"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its objects are gone."""


def fill_definition(definition: Obj) -> None:
    """The defaults of a definition, in place."""
    spec = definition.setdefault("spec", {})
    given = spec.setdefault("names", {})
    if not given.get("singular"):
        given["singular"] = str(given.get("kind") or "").lower()
    if not given.get("listKind") and given.get("kind"):
        given["listKind"] = given["kind"] + "List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    service = value_at(spec, "conversion", "webhook", "clientConfig", "service")
    if isinstance(service, dict) and service.get("port") is None:
        service["port"] = 443
    stored = storage_version(definition)
    if stored is not None and not (definition.get("status") or {}).get("storedVersions"):
        definition["status"] = {**(definition.get("status") or {}), "storedVersions": [stored]}


def storage_version(definition: Obj) -> str | None:
    """The version in which objects are stored: the first that says so."""
    versions = (definition.get("spec") or {}).get("versions") or ()
    return next((version.get("name") or "" for version in versions if version.get("storage")), None)


def is_established(definition: Obj) -> bool:
    """Whether its objects are served."""
    return has_condition(definition, "Established")


def is_shared(versions: Sequence[Obj], member: str) -> bool:
    """What all versions say alike is judged, and told of, as said once for all of them."""
    first = versions[0].get(member) if versions else None
    return bool(first) and all(version.get(member) == first for version in versions)


def schema_path(versions: Sequence[Obj], index: int) -> str:
    """Where the schema of one version is said to stand."""
    where = "spec.validation" if is_shared(versions, "schema") else f"spec.versions[{index}].schema"
    return f"{where}.openAPIV3Schema"


def schemas_of(definition: Obj | None) -> dict[str, Obj | None]:
    """The published schemas of a definition by version; None for one that has none."""
    versions = ((definition or {}).get("spec") or {}).get("versions") or ()
    return {version.get("name"): (version.get("schema") or {}).get("openAPIV3Schema") for version in versions}


def accepted_names(definition: Obj, others: Iterable[Obj]) -> tuple[Obj, tuple[str, str]]:
    """The names that a definition gets, and reason and message of the first that is taken (empty: all are its own).

    `others` are the accepted names of the group's other definitions.
    """
    requested = (definition.get("spec") or {}).get("names") or {}
    accepted = dict((definition.get("status") or {}).get("acceptedNames") or {"plural": "", "kind": ""})
    rest = list(others)
    words = {
        word
        for other in rest
        for word in (other.get("plural"), other.get("singular"), *(other.get("shortNames") or ()))
    }
    kinds = {kind for other in rest for kind in (other.get("kind"), other.get("listKind"))}
    problem = ("", "")
    for name, taken in (("plural", words), ("singular", words), ("kind", kinds), ("listKind", kinds)):
        wanted = requested.get(name) or ""
        if wanted and wanted in taken:
            problem = (
                problem if problem[0] else (f"{name[0].upper()}{name[1:]}Conflict", f'"{wanted}" is already in use')
            )
        elif wanted:
            accepted[name] = wanted
    clash = next((word for word in requested.get("shortNames") or () if word in words), None)
    if clash is not None:
        problem = problem if problem[0] else ("ShortNamesConflict", f'"{clash}" is already in use')
    else:
        _set(accepted, "shortNames", requested.get("shortNames"))
    _set(accepted, "categories", requested.get("categories"))
    return accepted, problem


def _set(target: Obj, name: str, value: Any) -> None:
    if value:
        target[name] = list(value)
    else:
        target.pop(name, None)
