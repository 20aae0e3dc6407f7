"""The command that carries a remedy out: one line of kubectl, for copy and paste into a shell.

Objects whose spec may not be changed are made again as they are but for a JSON Patch: `kubectl patch --dry-run=client`
applies it here, and `kubectl replace --force` deletes the old object, waits until it is gone, and creates the new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from shlex import quote
from typing import Any

from haru.engine import Snapshot
from haru.engine.state import PodInfo, namespaced_name
from haru.explain.explanation import Remedy
from haru.explain.remedies.json_diff import escaped, json_patch
from haru.explain.remedies.name_lists import addressed, named
from haru.gangs import as_written
from haru.kube.meta import Obj

_Key = tuple[str, str, str]
_GROUPS = {"PodGroup": "podgroups.scheduling.k8s.io"}
_OF_COSCHEDULING = "podgroups.scheduling.x-k8s.io"
_CLUSTER_SCOPED = frozenset({"Node", "DeviceClass", "DeviceTaintRule", "PersistentVolume", "StorageClass"})
FILE = "remade.json"
"""Where a command keeps pods that have to be gone for a while."""


def with_commands(snapshot: Snapshot, remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """Return the remedies, each with the command that makes its changes; those that have one keep it."""
    return tuple(
        r if r.command or not r.changes else replace(r, command=command(snapshot, r.changes)) for r in remedies
    )


def command(snapshot: Snapshot, changes: Sequence[Obj]) -> str:
    """Return one line that makes the changes in their order."""
    created = {_key(change["object"]): change["object"] for change in changes if change["action"] == "create"}
    again = [key for change in changes if change["action"] == "delete" and (key := _key(change["object"])) in created]
    bracketed = _bracketed(changes, again)
    steps: list[str] = []
    if bracketed:
        steps.append(f"{_saved(snapshot, bracketed)} >{FILE}")
    for action, group in groupby(changes, key=lambda change: str(change["action"])):
        steps += _steps(snapshot, action, list(group), created, set(again), set(bracketed))
    if bracketed:
        steps.append(f"kubectl create -f {FILE}")
    return " && ".join(steps)


def _steps(
    snapshot: Snapshot,
    action: str,
    changes: Sequence[Obj],
    created: Mapping[_Key, Obj],
    again: set[_Key],
    bracketed: set[_Key],
) -> Iterator[str]:
    if action == "patch":
        yield from _patches(snapshot, changes)
        return
    keys = [_key(change["object"]) for change in changes]
    if action == "delete":
        if bracketed & set(keys):
            yield f"kubectl delete -f {FILE}"
        yield from _deletions(snapshot, [key for key in keys if key not in again])
        yield from _remakes(snapshot, [created[key] for key in keys if key in again and key not in bracketed])
    else:
        yield from _creations(snapshot, [created[key] for key in keys if key not in again])


def _bracketed(changes: Sequence[Obj], again: Sequence[_Key]) -> list[_Key]:
    """Pods that have to be gone while something else is made again: a PodGroup that stays as long as it has pods."""
    others = [_key(change["object"]) for change in changes if change["action"] != "patch"]
    pods = [key for key in again if key[0] == "Pod"]
    return pods if pods and any(key[0] == "PodGroup" for key in others) else []


# -- what there is to do


def _patches(snapshot: Snapshot, changes: Sequence[Obj]) -> Iterator[str]:
    """Equal patches of objects of one kind in one command."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for change in changes:
        kind, namespace, name = _key(change["target"])
        for verb, rest in _patch(snapshot, kind, name, change["patch"], change["target"]["apiVersion"]):
            alike.setdefault((kind, namespace, verb, rest), []).append(name)
    for (kind, namespace, verb, rest), names in alike.items():
        head, _, resource = verb.rpartition(" ")
        about = f"{resource} {named(snapshot, kind, namespace, names)}"
        if verb.startswith("kubectl patch "):
            about = addressed(snapshot, kind, namespace, resource, names)
        yield " ".join(part for part in (head, about, _in(kind, namespace).strip(), rest) if part)


def _patch(snapshot: Snapshot, kind: str, name: str, body: Obj, version: str) -> Iterator[tuple[str, str]]:
    """Verb and arguments, with the names between them."""
    meta, spec = body.get("metadata") or {}, body.get("spec") or {}
    node = snapshot.nodes.get(name) if kind == "Node" else None
    if node is not None and spec == {"unschedulable": None}:
        yield "kubectl uncordon", ""
    elif node is not None and not meta and spec.keys() == {"taints"}:
        gone = [taint for taint in node.taints if taint not in spec["taints"]]
        yield "kubectl taint nodes", " ".join(f"{taint['key']}:{taint['effect']}-" for taint in gone)
    elif not spec and meta.keys() == {"labels"}:
        known = node.labels if node is not None else {}
        force = ["--overwrite"] if any(key in known for key in meta["labels"]) else []
        yield f"kubectl label {_resource(kind, version)}", " ".join([*force, *_pairs(meta["labels"])])
    elif not spec and meta.keys() == {"annotations"}:
        force = ["--overwrite"] if any(meta["annotations"].values()) else []
        yield f"kubectl annotate {_resource(kind, version)}", " ".join([*force, *_pairs(meta["annotations"])])
    elif not meta and spec.keys() == {"replicas"}:
        yield f"kubectl scale {_resource(kind, version)}", f"--replicas={spec['replicas']}"
    else:
        yield f"kubectl patch {_resource(kind, version)}", f"--type=merge -p {_quoted(body)}"


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}-" if value is None else quote(f"{key}={value}") for key, value in values.items()]


def _deletions(snapshot: Snapshot, keys: Sequence[_Key]) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for kind, namespace, name in keys:
        alike.setdefault((kind, namespace), []).append(name)
    for (kind, namespace), names in alike.items():
        yield f"kubectl delete {_resource(kind)} {named(snapshot, kind, namespace, names)}{_in(kind, namespace)}"


def _remakes(snapshot: Snapshot, objects: Sequence[Obj]) -> Iterator[str]:
    """Objects that are deleted and made anew with another spec; those with equal changes in one command."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for obj in objects:
        kind, namespace, name = _key(obj)
        patch = _quoted(json_patch(_spec_of(snapshot, obj), obj.get("spec") or {}, "/spec"))
        alike.setdefault((kind, _resource(kind, obj["apiVersion"]), namespace, patch), []).append(name)
    for (kind, resource, namespace, patch), names in alike.items():
        place = _in(kind, namespace)
        about = addressed(snapshot, kind, namespace, resource, names)
        source = f"kubectl patch {about}{place} --dry-run=client -o json --type=json -p {patch}"
        if patch == _quoted([]):
            source = f"kubectl get {resource} {named(snapshot, kind, namespace, names)}{place} -o json"
        yield f"{source} | kubectl replace --force -f -"


def _creations(snapshot: Snapshot, objects: Sequence[Obj]) -> Iterator[str]:
    """New objects; copies of one that exists are made from that, nodes only where a fleet simulates them."""
    for model, group in groupby(objects, key=lambda obj: _model(snapshot, obj)):
        made = list(group)
        if not model:
            yield from (f"printf %s {_quoted(obj)} | kubectl create -f -" for obj in made)
            continue
        kind, _namespace, name = _key(made[0])
        if kind == "Node" and not _is_simulated_copy(snapshot, made[0], model):
            continue
        word = name.removeprefix(f"{model}-").partition("-")[0]
        numbers = [_key(obj)[2].rpartition("-")[2] for obj in made]
        several = len(numbers) > 1
        step = _copy(snapshot, made[0], model, f"{model}-{word}-{_N if several else numbers[0]}")
        yield f"for n in {' '.join(numbers)}; do {step}; done" if several else step


SIMULATED = "simulated.haru.dev/profile"


def _is_simulated_copy(snapshot: Snapshot, obj: Obj, model: str) -> bool:
    """Whether a fleet takes the new node over, as one of the model's profile."""
    labels, other = snapshot.nodes[model].labels, obj["metadata"].get("labels") or {}
    amounts = (snapshot.nodes[model].spec.obj.get("status") or {}).get("allocatable")
    return SIMULATED in labels and labels.keys() == other.keys() and obj["status"]["allocatable"] == amounts


_N = "'$n'"
"""The number of a copy, in the middle of a text in single quotes."""


def _copy(snapshot: Snapshot, obj: Obj, model: str, name: str) -> str:
    """Make an object like one that exists, under another name."""
    kind, namespace, own = _key(obj)
    values = {"/metadata/name": "@"}
    for key, value in (snapshot.nodes[model].labels if kind == "Node" else {}).items():
        wanted = obj["metadata"]["labels"][key]
        if wanted != value:
            values[f"/metadata/labels/{escaped(key)}"] = "@" if wanted == own else wanted
    operations = [{"op": "replace", "path": way, "value": value} for way, value in values.items()]
    if kind == "Node":
        operations += json_patch(snapshot.nodes[model].spec.obj.get("spec") or {}, obj.get("spec") or {}, "/spec")
    patch = _quoted(operations).replace('"@"', f'"{name}"')
    head = f"kubectl patch {_resource(kind)} {model}{_in(kind, namespace)}"
    return f"{head} --dry-run=client -o json --type=json -p {patch} | kubectl create -f -"


def _model(snapshot: Snapshot, obj: Obj) -> str:
    """The object that a new one is a copy of, by the name that copies get."""
    kind, namespace, name = _key(obj)
    for word in ("-copy-", "-more-"):
        model, found, number = name.rpartition(word)
        known = model in snapshot.nodes if kind == "Node" else f"{namespace}/{model}" in snapshot.pods
        if found and number.isdigit() and kind in ("Node", "Pod") and known:
            return model
    return ""


def saved_pods(snapshot: Snapshot, pods: Sequence[PodInfo], file: str = FILE) -> str:
    """Return the command that writes pods to a file, as they are to be created again: without their nodes."""
    places: dict[str, list[str]] = {}
    for pod in pods:
        places.setdefault(pod.key.namespace, []).append(pod.key.name)
    found = [_unplaced(snapshot, space, names) for space, names in places.items()]
    return f"{found[0]} >{file}" if len(found) == 1 else f"{{ {'; '.join(found)}; }} >{file}"


def _unplaced(snapshot: Snapshot, namespace: str, names: Sequence[str]) -> str:
    """Print pods without their nodes."""
    about = addressed(snapshot, "Pod", namespace, "pod", names)
    patch = '--dry-run=client -o json --type=merge -p \'{"spec":{"nodeName":null}}\''
    return f"kubectl patch {about} -n {namespace} {patch}"


def made_again_command(snapshot: Snapshot, pods: Sequence[PodInfo]) -> str:
    """Return the command that makes pods of one namespace again: by their controllers, or from their own objects."""
    namespace, steps = pods[0].key.namespace, []
    made = [pod.key.name for pod in pods if pod.controller is not None]
    bare = [pod.key.name for pod in pods if pod.controller is None]
    if made:
        steps.append(f"kubectl delete pod {named(snapshot, 'Pod', namespace, made)} -n {namespace}")
    if bare:
        steps.append(f"{_unplaced(snapshot, namespace, bare)} | kubectl replace --force -f -")
    return " && ".join(steps)


def set_command(snapshot: Snapshot, pod: PodInfo, changes: Sequence[Obj], what: str, value: str) -> str:
    """Return the changes with `kubectl set` in place of the patch of a pod or template; nothing if there is none.

    Who makes the pods of a DaemonSet is not read, but its template can be changed as well.
    """
    owner = pod.controller or {}
    if changes and changes[0]["action"] == "patch":
        kind, namespace, name = _key(changes[0]["target"])
    elif not changes and owner.get("kind") == "DaemonSet":
        kind, namespace, name = "DaemonSet", pod.key.namespace, owner["name"]
    else:
        return ""
    first = f"kubectl set {what} {kind.lower()}/{name} -n {namespace} {value}"
    return " && ".join([first, *([command(snapshot, changes[1:])] if changes[1:] else [])])


def placed(snapshot: Snapshot, pods: Sequence[PodInfo]) -> str:
    """Return the command that waits until pods have their places."""
    namespace = pods[0].key.namespace
    names = named(snapshot, "Pod", namespace, [pod.key.name for pod in pods])
    return f"kubectl wait --for=condition=PodScheduled --timeout=5m pod {names} -n {namespace}"


def _saved(snapshot: Snapshot, keys: Sequence[_Key]) -> str:
    pods = [pod for _, namespace, name in keys if (pod := snapshot.pods.get(f"{namespace}/{name}")) is not None]
    return saved_pods(snapshot, pods).removesuffix(f" >{FILE}")


# -- words of kubectl


def _spec_of(snapshot: Snapshot, obj: Obj) -> Obj:
    """The spec that the object has now."""
    kind, namespace, name = _key(obj)
    path = f"{namespace}/{name}" if namespace else name
    pod = snapshot.pods.get(path) if kind == "Pod" else None
    if pod is not None:
        return as_written(pod.obj).get("spec") or {}
    known = snapshot.claims if kind == "ResourceClaim" else snapshot.objects(kind)
    return (known.get(path) or {}).get("spec") or {}


def _key(obj: Obj) -> _Key:
    namespace, _, name = namespaced_name(obj).rpartition("/")
    return obj["kind"], "" if obj["kind"] in _CLUSTER_SCOPED else namespace or "default", name


def _in(kind: str, namespace: str) -> str:
    return "" if kind in _CLUSTER_SCOPED else f" -n {namespace or 'default'}"


def _resource(kind: str, version: str = "") -> str:
    if kind == "PodGroup" and version.startswith("scheduling.x-k8s.io/"):
        return _OF_COSCHEDULING
    if kind == "Workload" and version.startswith("kueue.x-k8s.io/"):
        return "workloads.kueue.x-k8s.io"
    return _GROUPS.get(kind, kind.lower())


def _quoted(value: Any) -> str:
    """JSON as one word of a shell."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return "'" + text.replace("'", "'\\''") + "'"
