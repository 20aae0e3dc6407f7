"""PodSecurity: what the labels of a namespace let its pods ask of their nodes.

Pods are refused by the standard that is enforced, noted by the one that is audited, warned of by the third; for the
templates of workloads there are notes and warnings only: their pods are judged when they are made. Where everything is
privileged, as it is without labels, a write costs a look at its namespace.
Source: admission plugin PodSecurity, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from haru.apiserver.admission.security_of_namespaces import violations
from haru.apiserver.admission_options import AdmissionOptions
from haru.apiserver.call import Call
from haru.apiserver.core import Obj
from haru.kube.errors import FieldError, forbidden_error, internal_error
from haru.kube.pod_security.checks import Verdict
from haru.kube.pod_security.evaluating import evaluate
from haru.kube.pod_security.levels import LATEST, MODES, PREFIX, Mode, Policy, Standard, policy_of, strictness
from haru.kube.pod_security.templates import template_of

_NOTE = "pod-security.kubernetes.io/"
_HELP = {
    "pod_security_evaluations_total": "Evaluations of pods and templates, without requests that are exempt.",
    "pod_security_exemptions_total": "Requests that were exempt.",
    "pod_security_errors_total": "Errors that kept pods from being evaluated as their namespace says.",
}


class PodSecurity:
    """The plugin of one server, and what it counts."""

    def __init__(self, options: AdmissionOptions, minor: int) -> None:
        self._options = options
        self._minor = minor
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _HELP}

    # --- namespaces

    async def check_namespace(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Refuse labels that say nothing known; warn of pods that a stricter standard would not have let in."""
        labels, name = new["metadata"].get("labels") or {}, new["metadata"]["name"]
        policy, errors = policy_of(labels, self._options.defaults)
        before: Policy = Policy()
        old_errors: list[FieldError] = []
        if old is not None:
            before, old_errors = policy_of(old["metadata"].get("labels") or {}, self._options.defaults)
        if errors and (old is None or _texts(errors) != _texts(old_errors)):
            raise call.invalid(name, errors)
        if old is not None and not _is_stricter(policy.enforce, before.enforce):
            return
        if name in self._options.exempt_namespaces:
            if not policy.is_privileged and policy != self._options.defaults:
                told = ", ".join(
                    f"{mode}={standard}"
                    for mode in MODES
                    if (standard := getattr(policy, mode)).level != "privileged"
                    and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
                )
                why = f'namespace "{name}" is exempt from Pod Security, and the policy ({told}) will be ignored'
                call.request.warnings.append(why)
        elif old is not None:
            exempt = self._options.exempt_runtime_classes
            call.request.warnings += await violations(call.core, name, policy.enforce, exempt)

    # --- pods and templates

    async def check_pod(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Judge a pod that is new, or whose containers or images change."""
        if self._is_exempt(call):
            return
        policy, errors = await self._policy(call)
        if (not errors and policy.is_privileged) or (old is not None and not _is_significant(new, old)):
            return
        self._judge(call, policy, errors, new["metadata"], new.get("spec") or {}, new["metadata"]["name"])

    async def check_workload(self, call: Call, new: Obj) -> None:
        """Note and warn of what the pods of a workload would be refused for, or noted and warned of."""
        if self._is_exempt(call):
            return
        policy, errors = await self._policy(call)
        if not errors and policy.audit.level == policy.warn.level == "privileged":
            return
        template = template_of(new)
        if template is not None:
            self._judge(call, policy, errors, template.get("metadata") or {}, template.get("spec") or {}, None)

    def _is_exempt(self, call: Call) -> bool:
        options = self._options
        reason = ""
        if call.namespace in options.exempt_namespaces:
            reason = "namespace"
        elif call.request.user.name in options.exempt_users:
            reason = "user"
        if reason:
            self._exempted(call, reason)
        return bool(reason)

    def _exempted(self, call: Call, reason: str) -> None:
        call.request.annotations.setdefault(f"{_NOTE}exempt", reason)
        self._count("pod_security_exemptions_total", call)

    async def _policy(self, call: Call) -> tuple[Policy, list[FieldError]]:
        namespace = await call.core.peek("", "namespaces", "", call.namespace)
        if namespace is None:
            self._count("pod_security_errors_total", call, fatal="true")
            raise internal_error(f'failed to lookup namespace "{call.namespace}"')
        labels = namespace["metadata"].get("labels")
        return policy_of(labels, self._options.defaults) if labels else (self._options.defaults, [])

    def _judge(
        self, call: Call, policy: Policy, errors: Sequence[FieldError], metadata: Obj, spec: Obj, enforce_on: str | None
    ) -> None:
        """Refuse (the pod of that name, if there is one), note and warn."""
        if spec.get("runtimeClassName") in self._options.exempt_runtime_classes:
            self._exempted(call, "runtimeClass")
            return
        notes = call.request.annotations
        if errors:
            notes.setdefault(f"{_NOTE}error", f"Failed to parse policy: {_aggregate(errors)}")
            self._count("pod_security_errors_total", call, fatal="false")
        verdicts: dict[Standard, Verdict] = {}

        def verdict_of(mode: Mode) -> tuple[Standard, Verdict]:
            standard: Standard = getattr(policy, mode)
            if standard not in verdicts:
                verdicts[standard] = evaluate(standard, metadata, spec)
            found = verdicts[standard]
            if mode == "enforce" or not found.allowed:
                self._evaluated(call, standard, mode, found.allowed)
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

    def _evaluated(self, call: Call, standard: Standard, mode: Mode, allowed: bool) -> None:
        version = standard.version
        if standard.level == "privileged":
            version = "latest"
        elif self._minor < standard.minor < LATEST:
            version = "future"
        self._count(
            "pod_security_evaluations_total",
            call,
            decision="allow" if allowed else "deny",
            mode=mode,
            policy_level=standard.level,
            policy_version=version,
        )

    def _count(self, metric: str, call: Call, **labels: str) -> None:
        kind = call.resource.kind
        labels["request_operation"] = "create" if call.verb == "create" else "update"
        labels["resource"] = "pod" if (kind.group, kind.plural) == ("", "pods") else "controller"
        labels["subresource"] = call.subresource
        self._counts[metric][",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))] += 1

    def lines(self) -> list[str]:
        """The exposition in Prometheus' text form; nothing of what never happened."""
        found: list[str] = []
        for name, text in _HELP.items():
            if self._counts[name]:
                found += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
                found += [f"{name}{{{labels}}} {count}" for labels, count in sorted(self._counts[name].items())]
        return found


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
