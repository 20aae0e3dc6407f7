"""Check pods and pod templates against the Pod Security Standards that the labels of their namespace select.

The plugin refuses a pod that violates the `enforce` standard, annotates the audit event for the `audit` standard, and
warns for the `warn` standard. A workload's pod template gets annotations and warnings only: the plugin checks its pods
when they are created. Where every standard is `privileged`, as without labels, a write costs one namespace look-up.
Source: admission plugin PodSecurity, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.apiserver.admission.namespace_pod_security import violations
from haru.apiserver.context import Obj
from haru.apiserver.request.call import Call
from haru.kube.errors import FieldError, forbidden_error, internal_error
from haru.kube.pod_security.checks import Verdict
from haru.kube.pod_security.evaluating import evaluate
from haru.kube.pod_security.levels import LATEST, MODES, PREFIX, Mode, Policy, Standard, policy_of, strictness
from haru.kube.pod_security.templates import template_of

_NOTE = "pod-security.kubernetes.io/"


# --- namespaces


async def check_namespace(call: Call, new: Obj, old: Obj | None) -> None:
    """Refuse invalid labels of a namespace; warn of existing pods that violate a stricter `enforce` standard."""
    options = call.core.pod_security.options
    labels, name = new["metadata"].get("labels") or {}, new["metadata"]["name"]
    policy, errors = policy_of(labels, options.defaults)
    before: Policy = Policy()
    old_errors: list[FieldError] = []
    if old is not None:
        before, old_errors = policy_of(old["metadata"].get("labels") or {}, options.defaults)
    if errors and (old is None or _texts(errors) != _texts(old_errors)):
        raise call.invalid(name, errors)
    if old is not None and not _is_stricter(policy.enforce, before.enforce):
        return
    if name in options.exempt_namespaces:
        if not policy.is_privileged and policy != options.defaults:
            told = ", ".join(
                f"{mode}={standard}"
                for mode in MODES
                if (standard := getattr(policy, mode)).level != "privileged"
                and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
            )
            why = f'namespace "{name}" is exempt from Pod Security, and the policy ({told}) will be ignored'
            call.request.warnings.append(why)
    elif old is not None:
        exempt = options.exempt_runtime_classes
        call.request.warnings += await violations(call.core, name, policy.enforce, exempt)


# --- pods and templates


async def check_pod(call: Call, new: Obj, old: Obj | None) -> None:
    """Check a new pod, or an update that adds containers or changes images; 403 if it violates the standard."""
    if _is_exempt(call):
        return
    policy, errors = await _policy(call)
    if (not errors and policy.is_privileged) or (old is not None and not _is_significant(new, old)):
        return
    _judge(call, policy, errors, new["metadata"], new.get("spec") or {}, new["metadata"]["name"])


async def check_workload(call: Call, new: Obj) -> None:
    """Annotate and warn where the pod template of a workload violates a standard; never refuse."""
    if _is_exempt(call):
        return
    policy, errors = await _policy(call)
    if not errors and policy.audit.level == policy.warn.level == "privileged":
        return
    template = template_of(new)
    if template is not None:
        _judge(call, policy, errors, template.get("metadata") or {}, template.get("spec") or {}, None)


def _is_exempt(call: Call) -> bool:
    options = call.core.pod_security.options
    reason = ""
    if call.namespace in options.exempt_namespaces:
        reason = "namespace"
    elif call.request.user.name in options.exempt_users:
        reason = "user"
    if reason:
        _exempted(call, reason)
    return bool(reason)


def _exempted(call: Call, reason: str) -> None:
    call.request.annotations.setdefault(f"{_NOTE}exempt", reason)
    _count("pod_security_exemptions_total", call)


async def _policy(call: Call) -> tuple[Policy, list[FieldError]]:
    namespace = await call.core.peek("", "namespaces", "", call.namespace)
    if namespace is None:
        _count("pod_security_errors_total", call, fatal="true")
        raise internal_error(f'failed to lookup namespace "{call.namespace}"')
    labels, defaults = namespace["metadata"].get("labels"), call.core.pod_security.options.defaults
    return policy_of(labels, defaults) if labels else (defaults, [])


def _judge(
    call: Call, policy: Policy, errors: Sequence[FieldError], metadata: Obj, spec: Obj, enforce_on: str | None
) -> None:
    """Evaluate all three standards; refuse the pod named `enforce_on` (None: a template, which is not refused)."""
    if spec.get("runtimeClassName") in call.core.pod_security.options.exempt_runtime_classes:
        _exempted(call, "runtimeClass")
        return
    notes = call.request.annotations
    if errors:
        notes.setdefault(f"{_NOTE}error", f"Failed to parse policy: {_aggregate(errors)}")
        _count("pod_security_errors_total", call, fatal="false")
    verdicts: dict[Standard, Verdict] = {}

    def verdict_of(mode: Mode) -> tuple[Standard, Verdict]:
        standard: Standard = getattr(policy, mode)
        if standard not in verdicts:
            verdicts[standard] = evaluate(standard, metadata, spec)
        found = verdicts[standard]
        if mode == "enforce" or not found.allowed:
            _evaluated(call, standard, mode, found.allowed)
        return standard, found

    refusal = ""
    if enforce_on is not None:
        standard, verdict = verdict_of("enforce")
        notes.setdefault(f"{_NOTE}enforce-policy", str(standard))
        refusal = "" if verdict.allowed else f'violates PodSecurity "{standard}": {verdict.details}'
    standard, verdict = verdict_of("audit")
    if not verdict.allowed:
        notes.setdefault(f"{_NOTE}audit-violations", f'would violate PodSecurity "{standard}": {verdict.details}')
    if refusal:
        raise forbidden_error("", "pods", enforce_on or "", refusal)
    standard, verdict = verdict_of("warn")
    if not verdict.allowed:
        call.request.warnings.append(f'would violate PodSecurity "{standard}": {verdict.details}')


# --- counters


def _evaluated(call: Call, standard: Standard, mode: Mode, allowed: bool) -> None:
    version = standard.version
    if standard.level == "privileged":
        version = "latest"
    elif call.core.pod_security.minor < standard.minor < LATEST:
        version = "future"
    _count(
        "pod_security_evaluations_total",
        call,
        decision="allow" if allowed else "deny",
        mode=mode,
        policy_level=standard.level,
        policy_version=version,
    )


def _count(metric: str, call: Call, **labels: str) -> None:
    kind = call.resource.kind
    labels["request_operation"] = "create" if call.verb == "create" else "update"
    labels["resource"] = "pod" if (kind.group, kind.plural) == ("", "pods") else "controller"
    labels["subresource"] = call.subresource
    call.core.pod_security.count(metric, **labels)


def _texts(errors: Sequence[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def _aggregate(errors: Sequence[FieldError]) -> str:
    texts = list(dict.fromkeys(_texts(errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _is_stricter(new: Standard, old: Standard) -> bool:
    """Whether pods that the old standard let in may not be let in by the new one."""
    if new == old or new.level == "privileged":
        return False
    return new.minor != old.minor or strictness(new.level) > strictness(old.level)


def _is_significant(new: Obj, old: Obj) -> bool:
    """Whether containers are added or run another image: nothing else that is judged can change."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for member in ("containers", "initContainers"):
        if _images(after, member) != _images(before, member):
            return True
    known = dict(_images(before, "ephemeralContainers"))
    return any(known.get(name) != image for name, image in _images(after, "ephemeralContainers"))


def _images(spec: Obj, member: str) -> list[tuple[str, str]]:
    return [(str(c.get("name")), str(c.get("image") or "")) for c in spec.get(member) or ()]
