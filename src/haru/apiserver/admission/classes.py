"""Classes that objects name, or do not: runtime classes of pods, default storage and ingress classes.

Sources: admission plugins RuntimeClass, DefaultStorageClass and DefaultIngressClass, as behaviour.
"""

from __future__ import annotations

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj, told_name
from haru.kube.quantity import parse_quantity

_STORAGE_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_STORAGE_DEFAULT_BETA = "storageclass.beta.kubernetes.io/is-default-class"
_STORAGE_NAME_BETA = "volume.beta.kubernetes.io/storage-class"
_INGRESS_DEFAULT = "ingressclass.kubernetes.io/is-default-class"
_INGRESS_NAME_BETA = "kubernetes.io/ingress.class"


async def apply_runtime_class(call: Call, pod: Obj) -> None:
    """A pod gets the overhead and the scheduling rules of its runtime class, which must exist."""
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    found = await call.objects.peek("node.k8s.io", "runtimeclasses", "", name) if name else None
    if name and found is None:
        raise _refusal(call, pod, f'pod rejected: RuntimeClass "{name}" not found')
    fixed = ((found or {}).get("overhead") or {}).get("podFixed") or {}
    given = spec.get("overhead") or {}
    if fixed and not given:
        spec["overhead"] = dict(fixed)
    elif fixed and not _equal(given, fixed):
        raise _refusal(call, pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    _apply_scheduling(call, pod, (found or {}).get("scheduling") or {})


async def check_overhead(call: Call, pod: Obj) -> None:
    """A pod has the overhead of its runtime class, or none; one that nobody defined is refused last, as in 1.36."""
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    found = await call.objects.peek("node.k8s.io", "runtimeclasses", "", name) if name else None
    if spec.get("overhead") and not ((found or {}).get("overhead") or {}).get("podFixed"):
        raise _refusal(call, pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")


def _apply_scheduling(call: Call, pod: Obj, scheduling: Obj) -> None:
    spec = pod["spec"]
    wanted, own = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    for key, value in sorted(wanted.items()):
        if own.get(key, value) != value:
            raise _refusal(
                call,
                pod,
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own[key]}",
            )
    if wanted:
        spec["nodeSelector"] = {**own, **wanted}
    tolerations = list(spec.get("tolerations") or ())
    more = [each for each in scheduling.get("tolerations") or () if each not in tolerations]
    if more:
        spec["tolerations"] = tolerations + more


def _equal(one: Obj, other: Obj) -> bool:
    return one.keys() == other.keys() and all(parse_quantity(one[n]) == parse_quantity(other[n]) for n in one)


async def set_storage_class(call: Call, claim: Obj) -> None:
    """A volume claim that says nothing of a class gets the default one; an empty name says that it wants none."""
    annotations = claim["metadata"].get("annotations") or {}
    spec = claim.setdefault("spec", {})
    if spec.get("storageClassName") is not None or _STORAGE_NAME_BETA in annotations:
        return
    name = await _default_class(call, "storage.k8s.io", "storageclasses", (_STORAGE_DEFAULT, _STORAGE_DEFAULT_BETA))
    if name:
        spec["storageClassName"] = name


async def set_ingress_class(call: Call, ingress: Obj) -> None:
    """The same for an Ingress."""
    annotations = ingress["metadata"].get("annotations") or {}
    spec = ingress.setdefault("spec", {})
    if spec.get("ingressClassName") is not None or _INGRESS_NAME_BETA in annotations:
        return
    name = await _default_class(call, "networking.k8s.io", "ingressclasses", (_INGRESS_DEFAULT,))
    if name:
        spec["ingressClassName"] = name


async def _default_class(call: Call, group: str, plural: str, marks: tuple[str, ...]) -> str:
    """The default class: of several the newest, then the first by name."""
    found = [
        each["metadata"]
        for each in await call.objects.peek_all(group, plural)
        if any((each["metadata"].get("annotations") or {}).get(mark) == "true" for mark in marks)
    ]
    found.sort(key=lambda metadata: str(metadata["name"]))
    found.sort(key=lambda metadata: str(metadata.get("creationTimestamp") or ""), reverse=True)
    return str(found[0]["name"]) if found else ""


def _refusal(call: Call, obj: Obj, why: str) -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, told_name(obj), why)
