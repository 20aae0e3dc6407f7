"""Controllers of pods: deployments, jobs and their like, and what scales or protects them."""

from __future__ import annotations

from typing import Any

from haru.kube.autoscaling import autoscaler_as_v2
from haru.kube.meta import Obj, value_at
from haru.kube.printing.base import (
    NONE,
    UNKNOWN,
    Age,
    Printer,
    age,
    between,
    column,
    condition,
    containers_of,
    human_duration,
    instant,
    label_selector,
    meta,
    name,
    pairs,
    printer,
    since,
    spec,
    status,
)

_CONTAINERS = "Containers* Images* Selector*"


def _deployment(obj: Obj) -> list[Any]:
    counts = status(obj)
    ready = f"{counts.get('readyReplicas', 0)}/{spec(obj).get('replicas', 0)}"
    rollout = [counts.get("updatedReplicas", 0), counts.get("availableReplicas", 0)]
    return [name(obj), ready, *rollout, age(obj), *_template(obj)]


def _template(obj: Obj) -> list[Any]:
    return [*containers_of(spec(obj).get("template")), label_selector(spec(obj).get("selector"))]


def _replica_set(obj: Obj) -> list[Any]:
    counts = status(obj)
    replicas = [spec(obj).get("replicas", 0), counts.get("replicas", 0), counts.get("readyReplicas", 0)]
    return [name(obj), *replicas, age(obj), *_template(obj)]


def _replication_controller(obj: Obj) -> list[Any]:
    counts = status(obj)
    replicas = [spec(obj).get("replicas", 0), counts.get("replicas", 0), counts.get("readyReplicas", 0)]
    template = containers_of(spec(obj).get("template"))
    return [name(obj), *replicas, age(obj), *template, pairs(spec(obj).get("selector"))]


def _stateful_set(obj: Obj) -> list[Any]:
    ready = f"{status(obj).get('readyReplicas', 0)}/{spec(obj).get('replicas', 0)}"
    return [name(obj), ready, age(obj), *containers_of(spec(obj).get("template"))]


def _daemon_set(obj: Obj) -> list[Any]:
    keys = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    counts = [status(obj).get(key, 0) for key in (*keys, "numberAvailable")]
    selector = pairs(value_at(obj, "spec", "template", "spec", "nodeSelector"))
    return [name(obj), *counts, selector, age(obj), *_template(obj)]


def _job(obj: Obj) -> list[Any]:
    succeeded = status(obj).get("succeeded", 0)
    completions, parallelism = spec(obj).get("completions"), spec(obj).get("parallelism") or 0
    if completions is not None:
        done = f"{succeeded}/{completions}"
    else:
        done = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    start, end = instant(status(obj).get("startTime")), instant(status(obj).get("completionTime"))
    duration: Age | str = ""
    if start is not None:
        duration = human_duration((end - start).total_seconds()) if end is not None else Age(start)
    return [name(obj), _job_status(obj), done, duration, age(obj), *_template(obj)]


def _job_status(obj: Obj) -> str:
    def holds(type: str) -> bool:
        return condition(obj, type).get("status") == "True"

    for finished in ("Complete", "Failed"):
        if holds(finished):
            return finished
    if meta(obj).get("deletionTimestamp"):
        return "Terminating"
    for underway in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if holds(underway):
            return underway
    return "Running"


def _cron_job(obj: Obj) -> list[Any]:
    suspend = spec(obj).get("suspend")
    last = status(obj).get("lastScheduleTime")
    job = value_at(obj, "spec", "jobTemplate", "spec") or {}
    return [
        name(obj),
        spec(obj).get("schedule", ""),
        spec(obj).get("timeZone") or NONE,
        "<unset>" if suspend is None else str(suspend),
        len(status(obj).get("active") or ()),
        since(last) if last else NONE,
        age(obj),
        *containers_of(job.get("template")),
        label_selector(job.get("selector")),
    ]


def _pod_template(obj: Obj) -> list[Any]:
    template = obj.get("template") or {}
    return [name(obj), *containers_of(template), pairs(meta(template).get("labels"))]


def _controller_revision(obj: Obj) -> list[Any]:
    owners = [owner for owner in meta(obj).get("ownerReferences") or () if owner.get("controller")]
    if owners:
        group = str(owners[0].get("apiVersion", "")).rpartition("/")[0]
        kind = str(owners[0].get("kind", "")).lower()
        owner = f"{kind}.{group}/{owners[0].get('name')}" if group else f"{kind}/{owners[0].get('name')}"
    return [name(obj), owner if owners else NONE, obj.get("revision", 0), age(obj)]


def _autoscaler(obj: Obj) -> list[Any]:
    obj = autoscaler_as_v2(obj)
    target = spec(obj).get("scaleTargetRef") or {}
    minimum = spec(obj).get("minReplicas")
    return [
        name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _targets(obj),
        NONE if minimum is None else str(minimum),
        spec(obj).get("maxReplicas", 0),
        status(obj).get("currentReplicas", 0),
        age(obj),
    ]


def _targets(obj: Obj) -> str:
    """`cpu: 40%/80%` for every metric, at most two of them in full."""
    metrics = spec(obj).get("metrics") or ()
    if not metrics:
        return NONE
    observed = status(obj).get("currentMetrics") or ()
    texts = [_target(metric, observed[i] if i < len(observed) else {}) for i, metric in enumerate(metrics)]
    more = f" + {len(texts) - 2} more..." if len(texts) > 2 else ""
    return ", ".join(texts[:2]) + more


def _target(metric: Obj, observed: Obj) -> str:
    kind = str(metric.get("type", ""))
    key = kind[:1].lower() + kind[1:]
    wanted, current = metric.get(key) or {}, value_at(observed, key, "current") or {}
    target = wanted.get("target") or {}
    if target.get("averageUtilization") is not None:
        seen = current.get("averageUtilization")
        text = f"{UNKNOWN if seen is None else f'{seen}%'}/{target['averageUtilization']}%"
    elif target.get("averageValue") is not None:
        each = "" if kind in ("Resource", "ContainerResource") else " (avg)"
        text = f"{current.get('averageValue') or UNKNOWN}/{target['averageValue']}{each}"
    else:
        text = f"{current.get('value') or UNKNOWN}/{target.get('value', UNKNOWN)}"
    return f"{wanted['name']}: {text}" if "name" in wanted else text


def _disruption_budget(obj: Obj) -> list[Any]:
    bounds = [str(spec(obj).get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    return [name(obj), *bounds, status(obj).get("disruptionsAllowed", 0), age(obj)]


def _pod_group(obj: Obj) -> list[Any]:
    policy = "Gang" if (spec(obj).get("schedulingPolicy") or {}).get("gang") is not None else "Basic"
    scheduled, disrupted = condition(obj, "PodGroupScheduled"), condition(obj, "DisruptionTarget")
    state = "Scheduled" if scheduled.get("status") == "True" else "Unschedulable" if scheduled else "Pending"
    if disrupted:
        state = disrupted.get("reason", "")
    workload = value_at(obj, "spec", "podGroupTemplateRef", "workload", "workloadName") or NONE
    return [name(obj), policy, workload, state, age(obj)]


def _priority_class(obj: Obj) -> list[Any]:
    return [
        name(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age(obj),
        obj.get("preemptionPolicy", "PreemptLowerPriority"),
    ]


def _scale(obj: Obj) -> list[Any]:
    return [name(obj), spec(obj).get("replicas", 0), status(obj).get("replicas", 0), age(obj)]


_SCALE = (column("Name", named=False), column("Desired", "integer"), column("Available", "integer"), column("Age"))
PRINTERS = {
    ("autoscaling", ""): Printer(_SCALE, _scale),
    ("apps", "deployments"): printer(f"Name Ready Up-to-date Available Age {_CONTAINERS}", _deployment),
    ("apps", "replicasets"): printer(
        f"Name Desired:integer Current:integer Ready:integer Age {_CONTAINERS}", _replica_set
    ),
    ("", "replicationcontrollers"): printer(
        f"Name Desired:integer Current:integer Ready:integer Age {_CONTAINERS}", _replication_controller
    ),
    ("apps", "statefulsets"): printer("Name Ready Age Containers* Images*", _stateful_set),
    ("apps", "daemonsets"): printer(
        "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
        f"{_CONTAINERS}",
        _daemon_set,
    ),
    ("apps", "controllerrevisions"): printer("Name Controller Revision Age", _controller_revision),
    ("batch", "jobs"): printer(f"Name Status Completions Duration Age {_CONTAINERS}", _job),
    ("batch", "cronjobs"): printer(
        f"Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age {_CONTAINERS}", _cron_job
    ),
    ("", "podtemplates"): printer("Name Containers Images Pod_Labels", _pod_template),
    ("autoscaling", "horizontalpodautoscalers"): printer(
        "Name Reference Targets MinPods MaxPods Replicas Age", _autoscaler
    ),
    ("policy", "poddisruptionbudgets"): printer(
        "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age", _disruption_budget
    ),
    ("scheduling.k8s.io", "podgroups"): printer("Name Policy Workload Status Age", _pod_group),
    ("scheduling.k8s.io", "workloads"): printer("Name Age", between()),
    ("scheduling.k8s.io", "priorityclasses"): printer(
        "Name Value:integer Global-Default:boolean Age PreemptionPolicy", _priority_class
    ),
}
