"""Controllers with pod templates: deployments, replica sets, stateful and daemon sets, replication controllers."""

from __future__ import annotations

import re
from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.selectors import label_selector_from
from haru.kube.validation.common import each_message, immutable, not_negative, one_of, part, same
from haru.kube.validation.pod_specs import validate_pod_template
from haru.kube.validation.selectors import validate_label_selector
from haru.kube.validation.types import Rules

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


def validate_deployment(deployment: Obj, rules: Rules) -> list[FieldError]:
    """A Deployment's spec."""
    spec = part(deployment, "spec")
    found = not_negative("spec.replicas", spec.get("replicas"))
    found += _selector_and_template(spec, rules)
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
    return found + _selector_and_template(spec, rules)


def validate_replication_controller(controller: Obj, rules: Rules) -> list[FieldError]:
    """A ReplicationController's spec: its selector is a plain map."""
    spec = part(controller, "spec")
    selector, template = part(spec, "selector"), spec.get("template")
    found = not_negative("spec.replicas", spec.get("replicas"))
    if not selector:
        found.append(required("spec.selector"))
    if template is None:
        return [*found, required("spec.template")]
    labels = part(part(template, "metadata"), "labels")
    if any(labels.get(key) != value for key, value in selector.items()):
        found.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    return found + validate_pod_template("spec.template", template, rules) + _always_restarts(template)


def validate_stateful_set(stateful_set: Obj, rules: Rules) -> list[FieldError]:
    """A StatefulSet's spec."""
    spec = part(stateful_set, "spec")
    found = one_of("spec.podManagementPolicy", spec.get("podManagementPolicy"), ("OrderedReady", "Parallel"))
    strategy = part(spec, "updateStrategy")
    found += one_of("spec.updateStrategy.type", strategy.get("type"), ("OnDelete", "RollingUpdate"))
    rolling = part(strategy, "rollingUpdate")
    found += not_negative("spec.updateStrategy.rollingUpdate.partition", rolling.get("partition"))
    found += not_negative("spec.replicas", spec.get("replicas"))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if spec.get("serviceName"):
        found += each_message("spec.serviceName", spec["serviceName"], names.is_dns1123_subdomain(spec["serviceName"]))
    return found + _selector_and_template(spec, rules, "statefulset")


def validate_daemon_set(daemon_set: Obj, rules: Rules) -> list[FieldError]:
    """A DaemonSet's spec."""
    spec = part(daemon_set, "spec")
    found = _selector_and_template(spec, rules, "daemonset")
    strategy = part(spec, "updateStrategy")
    found += one_of("spec.updateStrategy.type", strategy.get("type"), ("OnDelete", "RollingUpdate"))
    if strategy.get("type") == "RollingUpdate":
        found += _rolling_update("spec.updateStrategy.rollingUpdate", part(strategy, "rollingUpdate"))
    found += not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    return found + not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def validate_selector_unchanged(new: Obj, old: Obj) -> list[FieldError]:
    """Deployments, replica sets and daemon sets keep their selector."""
    return immutable("spec.selector", part(new, "spec").get("selector"), part(old, "spec").get("selector"))


def validate_stateful_set_update(new: Obj, old: Obj) -> list[FieldError]:
    """Little of a StatefulSet's spec may change."""
    spec, before = part(new, "spec"), part(old, "spec")
    fixed = (spec.keys() | before.keys()) - _STATEFUL_FIELDS
    if all(same(spec.get(name), before.get(name)) for name in fixed):
        return []
    return [forbidden("spec", f"updates to statefulset spec for fields other than {_STATEFUL_UPDATABLE} are forbidden")]


def validate_pod_template_object(obj: Obj, rules: Rules) -> list[FieldError]:
    """A core PodTemplate."""
    return validate_pod_template("template", part(obj, "template"), rules)


def _selector_and_template(spec: Obj, rules: Rules, kind: str = "deployment") -> list[FieldError]:
    selector, template = spec.get("selector"), part(spec, "template")
    found: list[FieldError] = []
    if selector is None:
        found.append(required("spec.selector"))
    else:
        wrong = validate_label_selector("spec.selector", selector)
        found += wrong
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            found.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
        elif not wrong:
            labels = part(part(template, "metadata"), "labels")
            if not label_selector_from(selector).matches(labels):
                why = "`selector` does not match template `labels`"
                found.append(invalid("spec.template.metadata.labels", labels, why))
    return found + validate_pod_template("spec.template", template, rules) + _always_restarts(template)


def _always_restarts(template: Obj) -> list[FieldError]:
    spec = part(template, "spec")
    found: list[FieldError] = []
    policy = spec.get("restartPolicy")
    if policy in ("Never", "OnFailure"):
        found = one_of("spec.template.spec.restartPolicy", policy, ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicaSet is not Supported"
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))
    return found


def _deployment_strategy(field: str, strategy: Obj) -> list[FieldError]:
    kind = strategy.get("type")
    found = one_of(f"{field}.type", kind, ("Recreate", "RollingUpdate"))
    if kind == "Recreate" and strategy.get("rollingUpdate") is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        found.append(forbidden(f"{field}.rollingUpdate", why))
    if kind == "RollingUpdate":
        if strategy.get("rollingUpdate") is None:
            return [*found, required(f"{field}.rollingUpdate", "this should be defaulted and never be nil")]
        found += _rolling_update(f"{field}.rollingUpdate", strategy["rollingUpdate"])
    return found


def _rolling_update(field: str, rolling: Obj) -> list[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    found = count_or_percent(f"{field}.maxUnavailable", unavailable) + count_or_percent(f"{field}.maxSurge", surge)
    if _is_zero(unavailable) and _is_zero(surge):
        found.append(invalid(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    if isinstance(unavailable, str) and _PERCENT.fullmatch(unavailable) and int(unavailable[:-1]) > 100:
        found.append(invalid(f"{field}.maxUnavailable", unavailable, "must not be greater than 100%"))
    return found


def _is_zero(value: Any) -> bool:
    return value == 0 or (isinstance(value, str) and _PERCENT.fullmatch(value) is not None and int(value[:-1]) == 0)


def count_or_percent(field: str, value: Any) -> list[FieldError]:
    """A number that is not negative, or a percentage."""
    if isinstance(value, str):
        if _PERCENT.fullmatch(value):
            return []
        message = "a valid percent string must be a numeric string followed by an ending '%'"
        return [invalid(field, value, names.regex_error(message, _PERCENT_FORMAT, "1%", "93%"))]
    return not_negative(field, value)
