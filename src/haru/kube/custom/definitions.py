"""CustomResourceDefinitions: what is filled in, and which names one may have.

Source: apiextensions.k8s.io/v1 defaulting and its naming controller, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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


_SORTS = {"plural": "word", "singular": "word", "shortNames": "word", "kind": "kind", "listKind": "kind"}
"""Names of the same sort may not be alike within a group, whichever members they stand in."""


class TakenNames:
    """Which names are taken in each group, and who has them."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str, str], set[str]] = {}
        self._held: dict[str, set[tuple[str, str, str]]] = {}

    def hold(self, owner: str, group: str, names: Obj) -> None:
        """Let an owner have these names, and no others."""
        self.release(owner)
        held = self._held[owner] = set()
        for member, sort in _SORTS.items():
            given = names.get(member) or ()
            held.update((group, sort, name) for name in ([given] if isinstance(given, str) else given))
        for name in held:
            self._owners.setdefault(name, set()).add(owner)

    def release(self, owner: str) -> None:
        """Let an owner have no names any more."""
        for name in self._held.pop(owner, ()):
            self._owners[name].remove(owner)
            if not self._owners[name]:
                del self._owners[name]

    def by_another(self, owner: str, group: str, member: str, name: str) -> bool:
        """Whether somebody else has a name that would clash with it as this member."""
        return bool(self._owners.get((group, _SORTS[member], name), set()) - {owner})


def accepted_names(definition: Obj, taken: TakenNames) -> tuple[Obj, tuple[str, str]]:
    """The names that a definition gets, and reason and message of the first that is taken (empty: all are its own)."""
    requested = (definition.get("spec") or {}).get("names") or {}
    accepted = dict((definition.get("status") or {}).get("acceptedNames") or {"plural": "", "kind": ""})
    is_taken = partial(taken.by_another, definition["metadata"]["name"], definition["spec"]["group"])
    problem = ("", "")
    for name in ("plural", "singular", "kind", "listKind"):
        wanted = requested.get(name) or ""
        if wanted and is_taken(name, wanted):
            problem = (
                problem if problem[0] else (f"{name[0].upper()}{name[1:]}Conflict", f'"{wanted}" is already in use')
            )
        elif wanted:
            accepted[name] = wanted
    clash = next((word for word in requested.get("shortNames") or () if is_taken("shortNames", word)), None)
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
