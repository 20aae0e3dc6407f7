"""Check pods and pod templates against the Pod Security Standards that the labels of their namespace select.

The plugin refuses a pod that violates the `enforce` standard, annotates the audit event for the `audit` standard, and
warns for the `warn` standard. A workload's pod template gets annotations and warnings only: the plugin checks its pods
when they are created. Where every standard is `privileged`, as without labels, a write costs one namespace look-up.
Source: admission plugin PodSecurity, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence

from haru.apiserver.admission_options import AdmissionOptions
from haru.apiserver.encoding.objects import decode
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.request.call import Call
from haru.kube.errors import FieldError, aggregate, forbidden_error, internal_error
from haru.kube.meta import Obj, controller_of
from haru.kube.pod_security import evaluate
from haru.kube.pod_security.checks import Verdict
from haru.kube.pod_security.levels import LATEST, MODES, PREFIX, Mode, Policy, Standard, policy_of, strictness
from haru.kube.pod_security.templates import template_of

MOST_PODS = 3000
MOST_SECONDS = 1.0
_AT_ONCE = 100
_NOTE = "pod-security.kubernetes.io/"
_HELP = {
    "pod_security_evaluations_total": "Evaluations of pods and templates, without requests that are exempt.",
    "pod_security_exemptions_total": "Requests that were exempt.",
    "pod_security_errors_total": "Errors that kept pods from being evaluated as their namespace says.",
}


class PodSecurity:
    """Check namespaces, pods and pod templates; `minor` is the version of Kubernetes that the server emulates."""

    def __init__(self, options: AdmissionOptions, minor: int) -> None:
        self._options = options
        self._minor = minor
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _HELP}

    def lines(self) -> list[str]:
        """Return the counters in the text format of Prometheus; a metric without any value is left out."""
        found: list[str] = []
        for name, text in _HELP.items():
            if self._counts[name]:
                found += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
                found += [f"{name}{{{labels}}} {count}" for labels, count in sorted(self._counts[name].items())]
        return found

    async def check_namespace(self, call: Call, new: Obj, old: Obj | None = None) -> None:
        """Refuse invalid labels of a namespace; warn of existing pods that violate a stricter `enforce` standard."""
        options = self._options
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
            call.request.warnings += await violations(call.objects, name, policy.enforce, exempt)

    async def check_pod(self, call: Call, new: Obj, old: Obj | None = None) -> None:
        """Check a new pod, or an update that adds containers or changes images; 403 if it violates the standard."""
        if self._is_exempt(call):
            return
        policy, errors = await self._policy(call)
        if (not errors and policy.is_privileged) or (old is not None and not _is_significant(new, old)):
            return
        self._evaluate(call, policy, errors, new, new["metadata"]["name"])

    async def check_workload(self, call: Call, new: Obj, old: Obj | None = None) -> None:
        """Annotate and warn where the pod template of a workload violates a standard; never refuse."""
        if self._is_exempt(call):
            return
        policy, errors = await self._policy(call)
        if not errors and policy.audit.level == policy.warn.level == "privileged":
            return
        template = template_of(new)
        if template is not None:
            self._evaluate(call, policy, errors, template, None)

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
        namespace = await call.objects.peek("", "namespaces", "", call.namespace)
        if namespace is None:
            self._count("pod_security_errors_total", call, fatal="true")
            raise internal_error(f'failed to lookup namespace "{call.namespace}"')
        labels, defaults = namespace["metadata"].get("labels"), self._options.defaults
        return policy_of(labels, defaults) if labels else (defaults, [])

    def _evaluate(
        self, call: Call, policy: Policy, errors: Sequence[FieldError], pod: Obj, enforce_on: str | None
    ) -> None:
        """Evaluate all three standards; refuse the pod named `enforce_on` (None: a template, which is not refused)."""
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if spec.get("runtimeClassName") in self._options.exempt_runtime_classes:
            self._exempted(call, "runtimeClass")
            return
        notes = call.request.annotations
        if errors:
            notes.setdefault(f"{_NOTE}error", f"Failed to parse policy: {aggregate(errors)}")
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


def _texts(errors: Sequence[FieldError]) -> list[str]:
    return [str(error) for error in errors]


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


async def violations(objects: ObjectStore, namespace: str, standard: Standard, exempt: Collection[str]) -> list[str]:
    """Warnings: what is wrong, with how many pods, and by name with the first of them.

    At most 3000 pods are looked at, for a second at most: first those without a controller and one of each controller.
    """
    deadline = time.monotonic() + MOST_SECONDS
    pods = await _pods(objects, namespace, exempt)
    wrong: dict[str, list[str]] = {}
    checked = 0
    for pod in pods[:MOST_PODS]:
        checked += 1
        verdict = evaluate(standard, pod["metadata"], pod.get("spec") or {})
        if not verdict.allowed:
            wrong.setdefault(verdict.reasons, []).append(pod["metadata"]["name"])
        if checked % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if time.monotonic() > deadline:
            break
    found = []
    if checked < len(pods):
        found.append(
            f"new PodSecurity enforce level only checked against the first {checked} of {len(pods)} existing pods"
        )
    if wrong:
        found.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"')
    return found + sorted(f"{_who(names)}: {reasons}" for reasons, names in wrong.items())


async def _pods(objects: ObjectStore, namespace: str, exempt: Collection[str]) -> list[Obj]:
    """The pods in the order in which they are looked at."""
    page = await objects.store.range(objects.served.preferred("", "pods").prefix(namespace))
    first: list[Obj] = []
    others: list[Obj] = []
    seen: set[str] = set()
    for number, record in enumerate(page.records):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        pod = decode(record)
        if (pod.get("spec") or {}).get("runtimeClassName") in exempt:
            continue
        owner = controller_of(pod)
        if owner is not None and owner["uid"] in seen:
            others.append(pod)
            continue
        if owner is not None:
            seen.add(owner["uid"])
        first.append(pod)
    return first + others


def _who(names: list[str]) -> str:
    more = len(names) - 1
    if not more:
        return names[0]
    return f"{min(names)} (and {more} other {'pod' if more == 1 else 'pods'})"
