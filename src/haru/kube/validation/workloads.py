"""Controllers with pod templates: deployments, replica sets, stateful and daemon sets, replication controllers."""

from __future__ import annotations

import json
import re
from typing import Any

from haru.kube import names
from haru.kube.equality import same_members
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.selectors import label_selector_from
from haru.kube.validation.common import immutable_member, indexed, items, label_name, not_negative, part
from haru.kube.validation.pod_specs import validate_pod_template
from haru.kube.validation.selectors import validate_label_selector
from haru.kube.validation.types import Rules
from haru.kube.validation.volume_claim_specs import validate_volume_claim_spec

_PERCENT_FORMAT = "[0-9]+%"
_PERCENT = re.compile(_PERCENT_FORMAT)
_STATEFUL_UPDATABLE = (
    "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
    "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
)
_STATEFUL_FIELDS = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)
_RETENTION = ("Retain", "Delete")


def validate_deployment(deployment: Obj, rules: Rules) -> list[FieldError]:
    """A Deployment's spec."""
    spec = part(deployment, "spec")
    found = not_negative("spec.replicas", spec.get("replicas"))
    found += _selector(spec, "deployment") + _template(spec, rules)
    found += _deployment_strategy("spec.strategy", part(spec, "strategy"))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    found += not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    found += not_negative("spec.progressDeadlineSeconds", deadline)
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found


def validate_replica_set(replica_set: Obj, rules: Rules) -> list[FieldError]:
    """A ReplicaSet's spec."""
    spec = part(replica_set, "spec")
    found = not_negative("spec.replicas", spec.get("replicas"))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    return found + _selector(spec, "deployment") + _template(spec, rules)


def validate_replication_controller(controller: Obj, rules: Rules) -> list[FieldError]:
    """A ReplicationController's spec: its selector is a plain map."""
    spec = part(controller, "spec")
    selector, template = part(spec, "selector"), spec.get("template")
    found = not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    found += not_negative("spec.replicas", spec.get("replicas"))
    if not selector:
        found.append(required("spec.selector"))
    if template is None:
        return [*found, required("spec.template")]
    labels = part(part(template, "metadata"), "labels")
    if any(labels.get(key) != value for key, value in selector.items()):
        found.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    return (
        found
        + validate_pod_template("spec.template", template, rules)
        + _always_restarts(template, "ReplicationController")
    )


def validate_stateful_set(stateful_set: Obj, rules: Rules) -> list[FieldError]:
    """A StatefulSet's spec when it is created."""
    spec = part(stateful_set, "spec")
    found = label_name("spec.serviceName", spec["serviceName"]) if spec.get("serviceName") else []
    found += indexed(
        "spec.volumeClaimTemplates",
        items(spec, "volumeClaimTemplates"),
        lambda place, claim: validate_volume_claim_spec(f"{place}.spec", part(claim, "spec")),
    )
    return found + _stateful_set(spec, rules)


def _stateful_set(spec: Obj, rules: Rules) -> list[FieldError]:
    found = _stateful_strategy("spec.updateStrategy", part(spec, "updateStrategy"))
    policy = spec.get("podManagementPolicy") or ""
    if policy not in ("OrderedReady", "Parallel"):
        field = "spec.podManagementPolicy"
        found.append(invalid(field, policy, "must be 'OrderedReady' or 'Parallel'") if policy else required(field))
    retention = spec.get("persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled") if retention is not None else ():
        choice = part(spec, "persistentVolumeClaimRetentionPolicy").get(name) or ""
        if choice not in _RETENTION:
            found.append(not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", choice, _RETENTION))
    found += not_negative("spec.replicas", spec.get("replicas"))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    found += not_negative("spec.ordinals.start", part(spec, "ordinals").get("start"))
    found += _selector(spec, "statefulset")
    # Names of its pods are the controller's to make, and volumes of its claims come before those of the template.
    if _is_readable(spec):
        found += _unselected(spec) + validate_pod_template("spec.template", _with_claims(spec), rules)
    return found + _always_restarts(part(spec, "template"), "StatefulSet")


def _with_claims(spec: Obj) -> Obj:
    template, claims = part(spec, "template"), items(spec, "volumeClaimTemplates")
    pod = {name: value for name, value in part(template, "spec").items() if name not in ("hostname", "subdomain")}
    if claims:
        made = {part(claim, "metadata").get("name") or "": claim for claim in claims}
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in made]
        pod["volumes"] = volumes + [volume for volume in items(pod, "volumes") if volume.get("name") not in made]
    return {**template, "spec": pod}


def _stateful_strategy(field: str, strategy: Obj) -> list[FieldError]:
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind not in ("OnDelete", "RollingUpdate"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        return [invalid(field, strategy, why) if kind else required(field)]
    if rolling is None:
        return []
    if kind == "OnDelete":
        return [invalid(f"{field}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    found = not_negative(f"{field}.rollingUpdate.partition", rolling.get("partition"))
    unavailable, place = rolling.get("maxUnavailable"), f"{field}.rollingUpdate.maxUnavailable"
    if unavailable is None:
        return found
    found += count_or_percent(place, unavailable) + _not_more_than_all(place, unavailable)
    return [*found, invalid(place, unavailable, "cannot be 0")] if _is_zero(unavailable) else found


def validate_daemon_set(daemon_set: Obj, rules: Rules) -> list[FieldError]:
    """A DaemonSet's spec."""
    spec = part(daemon_set, "spec")
    found: list[FieldError] = []
    selector = spec.get("selector")
    if selector is not None:
        found = validate_label_selector("spec.selector", selector)
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            found.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    found += _unselected(spec) if _is_readable(spec) else []
    template = part(spec, "template")
    found += validate_pod_template("spec.template", template, rules) + _always_restarts(template, "DaemonSet")
    strategy, field = part(spec, "updateStrategy"), "spec.updateStrategy"
    if strategy.get("type") == "RollingUpdate":
        rolling = strategy.get("rollingUpdate")
        place = f"{field}.rollingUpdate"
        found += [required(place)] if rolling is None else _rolling_daemons(place, rolling)
    elif strategy.get("type") != "OnDelete":
        found.append(not_supported(field, strategy, ("RollingUpdate", "OnDelete")))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    return found + not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _rolling_daemons(field: str, rolling: Obj) -> list[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    found: list[FieldError] = []
    for name, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        found += count_or_percent(f"{field}.{name}", value) + _not_more_than_all(f"{field}.{name}", value)
    if _is_zero(unavailable) and _is_zero(surge):
        found.append(required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    elif not _is_zero(unavailable) and not _is_zero(surge):
        found.append(invalid(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    return found


def validate_selector_unchanged(new: Obj, old: Obj) -> list[FieldError]:
    """Deployments, replica sets and daemon sets keep their selector."""
    return immutable_member("spec", "selector", part(new, "spec"), part(old, "spec"), "apps.v1.DeploymentSpec")


def validate_stateful_set_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """Little of a StatefulSet's spec may change; what may not is not judged again."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = _stateful_set(spec, rules)
    fixed = (spec.keys() | before.keys()) - _STATEFUL_FIELDS
    if all(same_members(spec, before, name, "apps.v1.StatefulSetSpec") for name in fixed):
        return found
    why = f"updates to statefulset spec for fields other than {_STATEFUL_UPDATABLE} are forbidden"
    return [*found, forbidden("spec", why)]


def validate_pod_template_object(obj: Obj, rules: Rules) -> list[FieldError]:
    """A core PodTemplate."""
    return validate_pod_template("template", part(obj, "template"), rules)


def validate_controller_revision(revision: Obj) -> list[FieldError]:
    """A ControllerRevision: its data is an object."""
    found = not_negative("revision", revision.get("revision"))
    data = revision.get("data")
    if not isinstance(data, dict):
        found.append(required("data", "data is mandatory" if data is None else "data must be a valid JSON object"))
    return found


def validate_controller_revision_update(new: Obj, old: Obj) -> list[FieldError]:
    """A ControllerRevision keeps its data."""
    found = not_negative("revision", new.get("revision"))
    unchanged = json.dumps(new.get("data"), sort_keys=True) == json.dumps(old.get("data"), sort_keys=True)
    return found if unchanged else [*found, invalid("data", new.get("data"), "field is immutable")]


# --- what they share


def _selector(spec: Obj, kind: str) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    found = validate_label_selector("spec.selector", selector)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        found.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    elif found:
        found.append(invalid("spec.selector", selector, "" if kind == "statefulset" else "invalid label selector"))
    return found


def _is_readable(spec: Obj) -> bool:
    """Whether the selector selects something at all; what is wrong about it has been told."""
    return not validate_label_selector("spec.selector", spec.get("selector"))


def _unselected(spec: Obj) -> list[FieldError]:
    labels = part(part(part(spec, "template"), "metadata"), "labels")
    if label_selector_from(spec.get("selector")).matches(labels):
        return []
    return [invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")]


def _template(spec: Obj, rules: Rules) -> list[FieldError]:
    """The template, unless a selector that cannot be read makes it pointless to look at it."""
    if not _is_readable(spec):
        return []
    template = part(spec, "template")
    found = _unselected(spec) + validate_pod_template("spec.template", template, rules)
    return found + _always_restarts(template, "ReplicaSet")


def _always_restarts(template: Obj, kind: str) -> list[FieldError]:
    spec = part(template, "spec")
    found: list[FieldError] = []
    policy = spec.get("restartPolicy") or ""
    if policy != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))
    return found


def _deployment_strategy(field: str, strategy: Obj) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    place = f"{field}.rollingUpdate"
    if kind == "Recreate":
        why = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden(place, why)]
    if kind != "RollingUpdate":
        return [not_supported(field, strategy, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required(place, "this should be defaulted and never be nil")]
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    found = count_or_percent(f"{place}.maxUnavailable", unavailable) + count_or_percent(f"{place}.maxSurge", surge)
    if _is_zero(unavailable) and _is_zero(surge):
        found.append(invalid(f"{place}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return found + _not_more_than_all(f"{place}.maxUnavailable", unavailable)


def _not_more_than_all(field: str, value: Any) -> list[FieldError]:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return [invalid(field, value, "must not be greater than 100%")]
    return []


def _is_zero(value: Any) -> bool:
    """Whether a count is none; a text that is neither number nor percentage counts as none."""
    if not isinstance(value, str):
        return not value
    number = value[:-1] if _PERCENT.fullmatch(value) else value
    return not number.lstrip("+-").isdecimal() or int(number) == 0


def count_or_percent(field: str, value: Any) -> list[FieldError]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        message = "a valid percent string must be a numeric string followed by an ending '%'"
        return [invalid(field, value, names.regex_error(message, _PERCENT_FORMAT, "1%", "93%"))]
    return not_negative(field, value)
