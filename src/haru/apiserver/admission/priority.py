"""Priority: names of classes become numbers, for pods and (KEP 5710) for pod groups.

Source: admission plugin Priority of 1.36, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj, told_name

_GROUP = "scheduling.k8s.io"


async def set_pod_priority(call: Call, pod: Obj) -> None:
    """`priority` and `preemptionPolicy` from the class that the pod names, or from the default one."""
    spec = pod["spec"]
    chosen = await _class_for(call, pod, spec.get("priorityClassName"))
    value = int(chosen.get("value") or 0) if chosen else 0
    if chosen and not spec.get("priorityClassName"):
        spec["priorityClassName"] = chosen["metadata"]["name"]
    _require_agreement(call, pod, spec.get("priority"), value, "pod")
    spec["priority"] = value
    policy = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    given = spec.get("preemptionPolicy")
    if given and given != policy:
        why = (
            f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _refusal(call, pod, why)
    spec["preemptionPolicy"] = policy


async def keep_pod_priority(call: Call, new: Obj, old: Obj) -> None:
    """On update the numbers stay what they were; a manifest that does not carry them means no change."""
    for name in ("priority", "preemptionPolicy", "priorityClassName"):
        if new["spec"].get(name) is None and name in (old.get("spec") or {}):
            new["spec"][name] = old["spec"][name]


async def set_group_priority(call: Call, group: Obj) -> None:
    """The same for a PodGroup, when WorkloadAwarePreemption is on; with the gate off its fields are forbidden."""
    if not call.objects.gates.enabled("WorkloadAwarePreemption"):
        return
    spec = group.setdefault("spec", {})
    chosen = await _class_for(call, group, spec.get("priorityClassName"))
    value = int(chosen.get("value") or 0) if chosen else 0
    if chosen and not spec.get("priorityClassName"):
        spec["priorityClassName"] = chosen["metadata"]["name"]
    _require_agreement(call, group, spec.get("priority"), value, "PodGroup")
    spec["priority"] = value


async def _class_for(call: Call, obj: Obj, name: str | None) -> Obj | None:
    if name:
        found = await call.objects.peek(_GROUP, "priorityclasses", "", name)
        if found is None:
            raise _refusal(call, obj, f"no PriorityClass with name {name} was found")
        return found
    defaults = [c for c in await call.objects.peek_all(_GROUP, "priorityclasses") if c.get("globalDefault")]
    # Several defaults can only come from a race; the smallest harms least.
    return min(defaults, key=lambda c: int(c.get("value") or 0), default=None)


def _require_agreement(call: Call, obj: Obj, given: Any, computed: int, what: str) -> None:
    if given is not None and given != computed and what == "PodGroup":
        why = f"priority set in the pod group ({given}) must match the priority computed ({computed}) based on the "
        raise _refusal(call, obj, f"{why}priority class set in the spec")
    if given is not None and given != computed:
        why = (
            f"the integer value of priority ({given}) must not be provided in {what} spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name"
        )
        raise _refusal(call, obj, why)


def _refusal(call: Call, obj: Obj, why: str) -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, told_name(obj), why)


async def require_single_default(call: Call, priority_class: Obj) -> None:
    """Only one class may be the global default."""
    if not priority_class.get("globalDefault"):
        return
    name = priority_class["metadata"]["name"]
    for other in await call.objects.peek_all(_GROUP, "priorityclasses"):
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            raise _refusal(
                call,
                priority_class,
                f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist",
            )


async def require_single_default_on_update(call: Call, new: Obj, old: Obj) -> None:
    """The same when a class becomes the default."""
    if not old.get("globalDefault"):
        await require_single_default(call, new)
