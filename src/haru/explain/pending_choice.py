"""Which waiting work a list is about: a workload, a class of devices, a namespace, labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from haru.engine import Snapshot
from haru.engine.state import PodInfo, namespaced_name, workload_of
from haru.errors import InputError, NotFoundError
from haru.explain.diagnosis.makers import MAKERS
from haru.explain.object_names import KIND_WORDS, LISTED
from haru.explain.pending_rows import Choice
from haru.gangs import KUEUE_WORKLOAD, kueue_hold
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, controller_of
from haru.kube.names import names_text
from haru.kube.selectors import parse_label_selector


def with_labels(choice: Choice, selector: str) -> Choice:
    """The same of pods with these labels only; raises InputError for a selector that cannot be read."""
    if not selector:
        return choice
    try:
        labels = parse_label_selector(selector)
    except (StatusError, ValueError) as error:
        raise InputError(f"-l: {error}") from error

    def has_labels(kind: str, obj: Obj) -> bool:
        template = ((obj.get("spec") or {}).get("template") or {}).get("metadata") or {}
        return choice.makers(kind, obj) and labels.matches(template.get("labels") or {})

    return Choice(lambda pod: choice.pods(pod) and labels.matches(pod.labels), has_labels)


def in_namespace(namespace: str) -> Choice:
    """All work of a namespace."""
    return Choice(
        lambda pod: pod.key.namespace == namespace, lambda kind, obj: namespaced_name(obj).startswith(f"{namespace}/")
    )


def of_workload(kind: str, namespace: str, name: str) -> Choice:
    """The pods of a Job, ReplicaSet or StatefulSet (`kind` in small letters), whatever made it."""
    return Choice(
        lambda pod: _controller_path(pod, kind) == f"{namespace}/{name}",
        lambda of, obj: of.lower() == kind and namespaced_name(obj) == f"{namespace}/{name}",
    )


def where_text(kind: str, title: str) -> str:
    """Where was looked, as the end of a sentence: pods wait for a class, and in anything else."""
    return f"for {title}" if kind == "DeviceClass" else f"in {title}"


def choice_of(snapshot: Snapshot, kind: str, namespace: str, name: str) -> Choice:
    """What waits with an object of a listed kind."""
    if kind == "Namespace":
        return in_namespace(name)
    if kind == "DeviceClass":
        return Choice(lambda pod: name in _device_classes(snapshot, pod), lambda of, obj: False)
    if kind == "CronJob":
        return _of_jobs(snapshot, namespace, name)
    if kind == "Workload":
        return _of_scheduling_workload(snapshot, namespace, name)
    what = {f"{word}/{name}" for word in _words(kind)}
    return Choice(
        lambda pod: pod.key.namespace == namespace and workload_of(pod) in what,
        lambda of, obj: (
            _is_controlled(obj, namespace, kind, name) or (of == kind and namespaced_name(obj) == f"{namespace}/{name}")
        ),
    )


def _is_controlled(obj: Obj, namespace: str, kind: str, name: str) -> bool:
    owner = controller_of(obj)
    here = namespaced_name(obj).partition("/")[0] == namespace
    return here and owner is not None and owner["kind"].lower() in _words(kind) and owner["name"] == name


def _words(kind: str) -> tuple[str, ...]:
    """How a kind is written in front of a name; one that is not known here may be in the plural."""
    word = kind.lower()
    return (word,) if kind in LISTED else (word, word.removesuffix("s"))


def _of_jobs(snapshot: Snapshot, namespace: str, name: str) -> Choice:
    jobs = snapshot.objects("Job").items()
    made = {path for path, job in jobs if _is_controlled(job, namespace, "CronJob", name)}
    return Choice(
        lambda pod: _controller_path(pod, "job") in made,
        lambda of, obj: of == "Job" and namespaced_name(obj) in made,
    )


def _controller_path(pod: PodInfo, kind: str) -> str:
    owner = pod.controller or {}
    return f"{pod.key.namespace}/{owner.get('name')}" if str(owner.get("kind")).lower() == kind else ""


def _of_scheduling_workload(snapshot: Snapshot, namespace: str, name: str) -> Choice:
    """Pods of the PodGroups of a Workload of Kubernetes, or those that Kueue's Workload of that name holds."""
    groups = {
        path
        for path, group in snapshot.pod_groups.items()
        if path.startswith(f"{namespace}/") and _template_of(group).get("workloadName") == name
    }
    kueue = snapshot.objects(KUEUE_WORKLOAD.key)
    found = kueue.get(f"{namespace}/{name}")
    owned = {str(owner.get("uid")) for owner in (found or {"metadata": {}})["metadata"].get("ownerReferences") or ()}
    owners = [obj for kind in MAKERS for obj in snapshot.objects(kind).values()]

    def is_held(pod: PodInfo) -> bool:
        if pod.key.namespace != namespace:
            return False
        if pod.group is not None and pod.group.path in groups:
            return True
        held = kueue_hold(pod.obj, kueue.values(), owners)
        return (held is not None and held.workload == name) or (controller_of(pod.obj) or {}).get("uid") in owned

    return Choice(is_held, lambda of, obj: obj["metadata"].get("uid") in owned)


def _template_of(group: Obj) -> Obj:
    reference: Obj = ((group.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload") or {}
    return reference


def _device_classes(snapshot: Snapshot, pod: PodInfo) -> set[str]:
    """The classes that a pod's claims, templates and extended resources ask for."""
    found: set[str] = set()
    made = {s["name"]: s.get("resourceClaimName") for s in pod.status.get("resourceClaimStatuses") or ()}
    for entry in pod.claims:
        claim = snapshot.claims.get(f"{pod.key.namespace}/{entry.claim_name or made.get(entry.name)}")
        template = snapshot.objects("ResourceClaimTemplate").get(f"{pod.key.namespace}/{entry.template_name}")
        spec = claim["spec"] if claim is not None else ((template or {}).get("spec") or {}).get("spec") or {}
        for request in (spec.get("devices") or {}).get("requests") or ():
            asked = [request.get("exactly") or {}, *(request.get("firstAvailable") or ())]
            found |= {str(one.get("deviceClassName")) for one in asked}
    for name, obj in snapshot.objects("DeviceClass").items():
        resource = (obj.get("spec") or {}).get("extendedResourceName")
        if resource in pod.requests or f"deviceclass.resource.kubernetes.io/{name}" in pod.requests:
            found.add(name)
    return found


def check_exists(objects: Collection[Obj], snapshot: Snapshot, kind: str, namespace: str, name: str) -> None:
    """Raise NotFoundError where neither the object nor a pod of it is there, with the namespace that has one."""
    cluster_wide = kind in ("DeviceClass", "Namespace")
    there = [obj["metadata"] for obj in objects if obj["kind"] == kind and obj["metadata"]["name"] == name]
    namespaces = sorted({str(metadata.get("namespace") or "default") for metadata in there})
    if (there and cluster_wide) or namespace in namespaces:
        return
    choice = choice_of(snapshot, kind, namespace, name)
    makers = ((maker, {**obj, "kind": maker}) for maker in MAKERS for obj in snapshot.objects(maker).values())
    if not any(map(choice.pods, snapshot.pods.values())) and not any(choice.makers(*each) for each in makers):
        if kind not in LISTED:
            raise NotFoundError(_nothing_controlled(snapshot, kind, namespace, name))
        where = "" if cluster_wide else f" in namespace {namespace}"
        same = (obj["metadata"] for obj in objects if obj["kind"] == kind)
        names = {m["name"] for m in same if cluster_wide or (m.get("namespace") or "default") == namespace}
        hint = ("" if cluster_wide else elsewhere(namespaces)) or meant(name, names)
        raise NotFoundError(f'there is no {kind.lower()} "{name}"{where}{hint}')


def _nothing_controlled(snapshot: Snapshot, kind: str, namespace: str, name: str) -> str:
    """What is said of a kind that is not known here, of which no pod is: it may be misspelt."""
    pods = snapshot.pods.values()
    having = {pod.key.namespace for pod in pods if choice_of(snapshot, kind, pod.key.namespace, name).pods(pod)}
    hint = elsewhere(having) or f"; KIND is one of {KIND_WORDS}"
    return f'no pod in namespace {namespace} belongs to "{kind}/{name}"{hint}'


def meant(name: str, names: Iterable[str]) -> str:
    """Which name of those that there are was probably meant, as the end of a sentence; empty if none is close."""
    close = get_close_matches(name, sorted(names), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def elsewhere(namespaces: Iterable[str]) -> str:
    """Where an object of that name is, as the end of a sentence; empty if it is nowhere."""
    found = sorted(namespaces)
    if not found:
        return ""
    return f"; namespace {names_text(found, 1)} has one: add -n {found[0]}"
