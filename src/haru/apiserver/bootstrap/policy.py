"""Read tables of roles and bindings: `kubernetes_roles.txt`, those of kube-apiserver 1.36, says how they are written.

What Haru's components of the same names need beyond them is in roles of its own, `haru:NAME`, so that `kubectl get
clusterroles` shows those of 1.36 unchanged. Source: RBAC bootstrap policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from haru.kube.meta import Obj

_API = "rbac.authorization.k8s.io"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_CONTROLLER = "system:controller:"
_AGGREGATED = "system:aggregate-to-"
Triple = tuple[str, str, str]


def metadata(name: str, namespace: str = "") -> Obj:
    """Return the metadata of a role or binding that the server keeps up to date."""
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if name.startswith(_AGGREGATED):
        labels[f"{_API}/{name.removeprefix('system:')}"] = "true"
    found: Obj = {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}}
    return {**found, "namespace": namespace} if namespace else found


def _rule(columns: Sequence[str]) -> Obj:
    verbs, *rest = (column.split(",") for column in columns)
    if len(rest) == 1:
        return {"nonResourceURLs": rest[0], "verbs": verbs}
    groups = ["" if name == "core" else name for name in rest[0]]
    rule: Obj = {"apiGroups": groups, "resources": rest[1], "verbs": verbs}
    return {**rule, "resourceNames": rest[2]} if len(rest) > 2 else rule


def _subject(text: str) -> Obj:
    kind, _, name = text.partition(":")
    if kind == "account":
        return {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
    return {"apiGroup": _API, "kind": kind.capitalize(), "name": name}


@cache
def _lines(table: str) -> tuple[str, ...]:
    text = (Path(__file__).parent / table).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def read_roles(table: str, enabled: Callable[[str], bool] = lambda gate: True) -> list[Obj]:
    """Return the roles and bindings of a table with these feature gates."""
    found: list[Obj] = []
    role: Obj = {"rules": []}
    for line in _lines(table):
        if line.startswith("  "):
            columns = line.split()
            gate = columns.pop(0).strip("[]") if columns[0].startswith("[") else ""
            if not gate or enabled(gate):
                role["rules"].append(_rule(columns))
            continue
        path, *subjects = line.split()
        namespace, _, name = path.rpartition("/")
        kind = "Role" if namespace else "ClusterRole"
        role = {"apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata(name, namespace), "rules": []}
        found.append(role)
        if subjects != ["-"]:
            found.append(_binding(role, [_subject(text) for text in subjects if text != "nobody"]))
    # A role all of whose rules need gates that are off is not there, and neither is its binding.
    absent = {item["metadata"]["name"] for item in found if item.get("rules") == []}
    return [item for item in found if item["metadata"]["name"] not in absent]


def _binding(role: Obj, subjects: list[Obj]) -> Obj:
    name, namespace = role["metadata"]["name"], role["metadata"].get("namespace", "")
    bound = f"system::{name}" if name.startswith("extension-") else name
    return {
        "apiVersion": f"{_API}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": metadata(bound, namespace),
        "roleRef": {"apiGroup": _API, "kind": role["kind"], "name": name},
        "subjects": subjects,
    }


def merged(policy: Sequence[Obj], needs: Sequence[Obj]) -> list[Obj]:
    """Return the policy with what `needs` has beyond it: other objects, and roles `haru:NAME` for missing rules."""
    known = {_key(item): item for item in policy}
    found = list(policy)
    for item in needs:
        live = known.get(_key(item))
        if live is None:
            # A role of 1.36 that is not in the policy is of a feature that is off.
            if not item["metadata"]["name"].startswith(_CONTROLLER):
                found.append(item)
        elif item["kind"] == "ClusterRole" and item["metadata"]["name"].startswith((_CONTROLLER, "system:kube-")):
            rules = list(_beyond(item["rules"], live["rules"]))
            if rules:
                found += _own(item["metadata"]["name"], rules, known)
    return found


def _key(item: Obj) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _own(name: str, rules: list[Obj], known: dict[tuple[str, str, str], Obj]) -> Iterator[Obj]:
    own = f"haru:{name.removeprefix(_CONTROLLER).removeprefix('system:')}"
    yield {"apiVersion": f"{_API}/v1", "kind": "ClusterRole", "metadata": metadata(own), "rules": rules}
    bound = known["ClusterRoleBinding", "", name]
    yield {**bound, "metadata": metadata(own), "roleRef": {**bound["roleRef"], "name": own}}


def _beyond(wanted: Sequence[Obj], granted: Sequence[Obj]) -> Iterator[Obj]:
    """Yield the parts of rules that others do not grant."""
    there = {triple for rule in granted if "resourceNames" not in rule for triple in _triples(rule)}
    for rule in wanted:
        by_resource: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = tuple(verb for verb in rule["verbs"] if not _grants(there, (verb, group, resource)))
                if verbs:
                    by_resource.setdefault((group, verbs), []).append(resource)
        for (group, verbs), resources in by_resource.items():
            yield {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _triples(rule: Obj) -> Iterator[Triple]:
    for verb in rule["verbs"]:
        for group in rule.get("apiGroups") or ():
            for resource in rule["resources"]:
                yield verb, group, resource


def _grants(there: set[Triple], wanted: Triple) -> bool:
    verb, group, resource = wanted
    return any((v, g, r) in there for v in (verb, "*") for g in (group, "*") for r in (resource, "*"))
