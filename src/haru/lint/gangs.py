"""Gangs: groups larger than their pods, names of groups, Jobs that just miss being one (KEP 4671, 5547)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haru.gangs import COSCHEDULING_POD_GROUP
from haru.kube.decoding import suggest
from haru.kube.jobs import gang_refusal, has_gang_shape
from haru.kube.meta import Obj
from haru.lint.findings import Draft, Edit, Insert, Replace
from haru.lint.manifests import SCHEDULING, Item, Manifests, pod_spec

_TEMPLATE_SUFFIX = "-pgt-0"
_MAX_LABEL = 63
_MAX_STATEFUL_SET = 52
_COPIED = (
    "schedulingPolicy",
    "schedulingConstraints",
    "resourceClaims",
    "disruptionMode",
    "priorityClassName",
    "priority",
)

_LABEL = "scheduling.x-k8s.io/pod-group"


def check_group(item: Item, manifests: Manifests) -> Iterator[Draft]:
    """A PodGroup: its template, its size."""
    spec = item.obj.get("spec") or {}
    reference = (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    name = reference.get("workloadName")
    if name:
        yield from _template(item, spec, reference, str(name), manifests)
    count = _min_count(spec)
    members = [other for other in manifests.items if _group_of(other) == (item.namespace, item.name)]
    if count is None or not members:
        return
    pods = 0
    for member in members:
        pod = pod_spec(member)
        if pod is None or pod.pods is None:
            return
        pods += pod.pods
    path = "spec.schedulingPolicy.gang.minCount"
    # Single pods may be made by something that is not in the files; what makes pods says how many.
    makers = [m for m in members if m.kind is not None and m.kind.kind != "Pod"]
    if count > pods:
        listed = ", ".join(member.label for member in members)
        message = f"minCount is {count}, and {listed} make{'s' if len(members) == 1 else ''} {pods} pods at most"
        reason = "the gang never has its quorum: no pod of it is ever scheduled"
        severity = None if makers else "warning"
        yield Draft("group-too-few", path, message, reason, f"minCount: {pods}, or more pods", (), severity)  # type: ignore[arg-type]
    schedulers = {(pod_spec(m) or _none()).spec.get("schedulerName") or "default-scheduler" for m in members}
    if len(schedulers) > 1:
        message = f"its pods name the schedulers {', '.join(sorted(schedulers))}"
        reason = "one scheduler places a group as a whole"
        yield Draft("group-scheduler", "metadata.name", message, reason, "the same schedulerName in all pods")


def _none() -> Any:
    from haru.lint.manifests import PodSpec

    return PodSpec("", {}, {}, None)


def _min_count(spec: Obj) -> int | None:
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    value = gang.get("minCount") if isinstance(gang, dict) else None
    return int(value) if value is not None else None


def _group_of(item: Item) -> tuple[str, str] | None:
    pod = pod_spec(item)
    name = ((pod.spec.get("schedulingGroup") or {}).get("podGroupName")) if pod is not None else None
    return (item.namespace, str(name)) if name else None


def _template(item: Item, spec: Obj, reference: Obj, name: str, manifests: Manifests) -> Iterator[Draft]:
    place = "spec.podGroupTemplateRef.workload"
    workload = manifests.find("Workload", item.namespace, name)
    if workload is None:
        names = manifests.names("Workload", item.namespace)
        reason = "the API refuses a PodGroup whose Workload is not there"
        yield _missing(f"{place}.workloadName", "Workload", name, names, reason)
        return
    wanted = reference.get("podGroupTemplateName")
    templates = {t.get("name"): t for t in (workload.obj.get("spec") or {}).get("podGroupTemplates") or ()}
    template = templates.get(wanted)
    if template is None:
        close = suggest(str(wanted), [str(one) for one in templates])
        message = f'the Workload has no template "{wanted}"'
        edits: tuple[Edit, ...] = (Replace(f"{place}.podGroupTemplateName", close),) if close else ()
        listed = ", ".join(str(one) for one in templates)
        advice = f'did you mean "{close}"?' if close else f"it has {listed}"
        yield Draft(
            "group-template", f"{place}.podGroupTemplateName", message, "the API refuses the PodGroup", advice, edits
        )
        return
    for field in _COPIED:
        if field in template and template.get(field) != spec.get(field):
            message = f"{field} differs from the template's"
            reason = "the scheduler reads the PodGroup only; who made the template expects its copy"
            yield Draft(
                "group-differs", f"spec.{field}" if field in spec else "spec", message, reason, "copy the template's"
            )


def _missing(path: str, kind: str, name: str, names: list[str], reason: str) -> Draft:
    close = suggest(name, names)
    message = f'no {kind} "{name}" is in the files'
    if close:
        return Draft("reference-missing", path, message, reason, f'did you mean "{close}"?', (Replace(path, close),))
    if names:
        return Draft("reference-missing", path, message, reason, f"the files have {', '.join(sorted(names))}")
    return Draft("reference-elsewhere", path, message, reason, f"give lint the file of the {kind} as well")


def check_members(item: Item, manifests: Manifests) -> Iterator[Draft]:
    """What a pod, or a maker of pods, says of its group; and Jobs."""
    pod = pod_spec(item)
    if pod is None:
        return
    name = (pod.spec.get("schedulingGroup") or {}).get("podGroupName")
    if name and manifests.find("PodGroup", item.namespace, str(name)) is None:
        names = manifests.names("PodGroup", item.namespace)
        reason = "the pods wait until there is such a PodGroup"
        path = f"{pod.path}.schedulingGroup.podGroupName"
        if manifests.find("Workload", item.namespace, str(name)) is not None:
            message = f'"{name}" is a Workload, not a PodGroup'
            advice = "name the PodGroup: a Workload is only the template of some"
            yield Draft("reference-missing", path, message, reason, advice)
        else:
            yield _missing(path, "PodGroup", str(name), names, reason)
    group = str((pod.metadata.get("labels") or {}).get(_LABEL) or "")
    kind = COSCHEDULING_POD_GROUP.key
    if group and not name and manifests.find(kind, item.namespace, group) is None:
        reason = "the pods wait until there is such a PodGroup of scheduling.x-k8s.io"
        path = f"{pod.path.removesuffix('spec')}metadata.labels[{_LABEL}]"
        yield _missing(path, "PodGroup", group, manifests.names(kind, item.namespace), reason)
    if item.is_a("batch", "Job"):
        yield from _job(item, bool(name), bool(pod.spec.get("resourceClaims")))
    if item.is_a("apps", "StatefulSet") and len(item.name) > _MAX_STATEFUL_SET:
        message = f"the name has {len(item.name)} characters"
        reason = (
            f"{item.name}-HASH is a label of its pods, and labels have at most {_MAX_LABEL} characters: no pod is made"
        )
        yield Draft("name-too-long", "metadata.name", message, reason, f"at most {_MAX_STATEFUL_SET} characters")


def _job(item: Item, grouped: bool, devices: bool) -> Iterator[Draft]:
    spec = item.obj.get("spec") or {}
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    indexed = spec.get("completionMode") == "Indexed"
    if grouped or parallelism is None or parallelism < 2 or gang_refusal(item.obj):
        return
    if has_gang_shape(spec):
        yield from _gang_job(item, spec)
        return
    written = item.raw.get("spec") or {}
    reason = "only a Job with completionMode: Indexed and completions = parallelism is scheduled as a gang"
    if not indexed and completions == parallelism and devices and "completionMode" not in written:
        edits: tuple[Edit, ...] = (Insert("spec", "completionMode", "Indexed"),)
        message = f"{parallelism} pods at once, but not Indexed"
        yield Draft(
            "job-no-gang", "spec", message, reason, "completionMode: Indexed, if the pods need each other", edits
        )
    elif indexed and completions is not None and devices:
        message = f"completions is {completions}, parallelism {parallelism}"
        advice = "the same number in both, if the pods need each other"
        yield Draft("job-no-gang", "spec.parallelism", message, reason, advice)


def _gang_job(item: Item, spec: Obj) -> Iterator[Draft]:
    if len(item.name) + len(_TEMPLATE_SUFFIX) > _MAX_LABEL:
        message = f"the name has {len(item.name)} characters"
        reason = f"its gang's template would be {item.name}{_TEMPLATE_SUFFIX}, longer than {_MAX_LABEL}"
        advice = f"at most {_MAX_LABEL - len(_TEMPLATE_SUFFIX)} characters"
        yield Draft("name-too-long", "metadata.name", message, reason, advice)
    if spec.get("suspend") is True:
        message = "a Job that is made suspended gets no Workload and no PodGroup"
        reason = "the job controller makes them only for a Job without a Suspended condition; its pods come one by one"
        advice = "make the PodGroup yourself and name it in the template's schedulingGroup"
        yield Draft("job-suspended", "spec.suspend", message, reason, advice)


def is_group(item: Item) -> bool:
    """Whether an item is a PodGroup of Kubernetes."""
    return item.is_a(SCHEDULING, "PodGroup")
