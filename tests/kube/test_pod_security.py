"""The Pod Security Standards: each check at each level, in the words of 1.36, and what versions change."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.pod_security import evaluate
from haru.kube.pod_security.levels import LATEST, Policy, Standard, policy_of

Obj = dict[str, Any]

GOOD = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def container(name: str = "a", **context: Any) -> Obj:
    return {"name": name, "image": "i", "securityContext": {**GOOD, **context}}


def spec(*containers: Obj, **members: Any) -> Obj:
    return {"containers": list(containers) or [container()], **members}


def details(level: str, pod: Obj, minor: int = LATEST, **annotations: str) -> str:
    return evaluate(Standard(level, minor), {"annotations": annotations}, pod).details  # type: ignore[arg-type]


BASELINE: list[tuple[Obj, str]] = [
    (
        spec(hostNetwork=True, hostPID=True, hostIPC=True),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    ),
    (
        spec(volumes=[{"name": "x", "hostPath": {"path": "/"}}, {"name": "y", "hostPath": {"path": "/"}}]),
        'hostPath volumes (volumes "x", "y")',
    ),
    (
        spec({**container(), "ports": [{"containerPort": 1, "hostPort": 8080}, {"containerPort": 2, "hostPort": 80}]}),
        'hostPort (container "a" uses hostPorts 80, 8080)',
    ),
    (
        spec(container("a", privileged=True), container("b", privileged=True)),
        'privileged (containers "a", "b" must not set securityContext.privileged=true)',
    ),
    (
        spec(container(capabilities={"add": ["SYS_ADMIN", "KILL", "NET_RAW"]})),
        'non-default capabilities (container "a" must not include "NET_RAW", "SYS_ADMIN" in '
        "securityContext.capabilities.add)",
    ),
    (
        spec(container(procMount="Unmasked")),
        'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
    ),
    (
        spec(
            container(seLinuxOptions={"type": "x_t", "user": "u", "role": "r"}),
            securityContext={"seLinuxOptions": {"type": "container_engine_t", "user": "u"}},
        ),
        'seLinuxOptions (pod and container "a" set forbidden securityContext.seLinuxOptions: type "x_t"; '
        "user may not be set; role may not be set)",
    ),
    (
        spec(
            container(seccompProfile={"type": "Unconfined"}), securityContext={"seccompProfile": {"type": "Unconfined"}}
        ),
        'seccompProfile (pod and container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
    ),
    (
        spec(container(appArmorProfile={"type": "Unconfined"})),
        'forbidden AppArmor profile (container "a" must not set AppArmor profile type to "Unconfined")',
    ),
    (
        spec(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem"}]}),
        "forbidden sysctls (kernel.msgmax)",
    ),
    (
        spec(securityContext={"windowsOptions": {"hostProcess": True}}),
        "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
    ),
    (
        spec({**container(), "livenessProbe": {"httpGet": {"port": 1, "host": "8.8.8.8"}}}),
        'probe or lifecycle host (container "a" uses probe or lifecycle host "8.8.8.8")',
    ),
]


@pytest.mark.parametrize(("pod", "told"), BASELINE, ids=[told.partition(" (")[0] for _, told in BASELINE])
def test_baseline_violations_are_listed(pod: Obj, told: str) -> None:
    assert details("baseline", pod) == told
    assert details("privileged", pod) == ""


RESTRICTED: list[tuple[Obj, str]] = [
    (
        spec(container(allowPrivilegeEscalation=None)),
        'allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)',
    ),
    (
        spec(container(capabilities={"add": ["KILL"]})),
        'unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; '
        'container "a" must not include "KILL" in securityContext.capabilities.add)',
    ),
    (
        spec(volumes=[{"name": "x", "nfs": {"server": "s", "path": "/"}}, {"name": "y", "emptyDir": {}}]),
        'restricted volume types (volume "x" uses restricted volume type "nfs")',
    ),
    (
        spec(volumes=[{"name": "x", "hostPath": {"path": "/"}}, {"name": "y", "gitRepo": {}}]),
        'restricted volume types (volumes "x", "y" use restricted volume types "gitRepo", "hostPath")',
    ),
    (
        spec(container(runAsNonRoot=None), container("b", runAsNonRoot=None)),
        'runAsNonRoot != true (pod or containers "a", "b" must set securityContext.runAsNonRoot=true)',
    ),
    (
        spec(container(runAsNonRoot=False), securityContext={"runAsNonRoot": False}),
        'runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)',
    ),
    (spec(container(runAsUser=0)), 'runAsUser=0 (container "a" must not set runAsUser=0)'),
    (
        spec(container(seccompProfile=None)),
        'seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to '
        '"RuntimeDefault" or "Localhost")',
    ),
]


@pytest.mark.parametrize(("pod", "told"), RESTRICTED, ids=[told.partition(" (")[0] for _, told in RESTRICTED])
def test_restricted_violations_are_listed(pod: Obj, told: str) -> None:
    assert details("restricted", pod) == told


def test_plain_pod_meets_baseline_and_violates_restricted() -> None:
    bare = {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}]}
    assert details("baseline", bare) == ""
    told = details("restricted", bare)
    assert told.startswith('allowPrivilegeEscalation != false (containers "i", "a", "e" must set')
    assert [
        part.strip() for part in ("unrestricted capabilities", "runAsNonRoot != true", "seccompProfile") if part in told
    ]
    assert details("restricted", spec()) == ""


def test_pod_level_security_context_counts_for_containers() -> None:
    whole = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}
    assert details("restricted", spec(container(runAsNonRoot=None, seccompProfile=None), securityContext=whole)) == ""


@pytest.mark.parametrize(
    ("level", "pod", "since"),
    [
        ("baseline", spec(container(procMount="Unmasked"), hostUsers=False), 35),
        ("restricted", spec(container(runAsNonRoot=False), hostUsers=False), 35),
        ("restricted", spec(container(runAsUser=0), hostUsers=False), 35),
        ("baseline", spec(container(seLinuxOptions={"type": "container_engine_t"})), 31),
        ("baseline", spec(securityContext={"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]}), 27),
        ("baseline", spec(securityContext={"sysctls": [{"name": "net.ipv4.tcp_fin_timeout"}]}), 29),
        ("baseline", spec(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}), 32),
        (
            "restricted",
            {"containers": [{"name": "a", "securityContext": {"runAsNonRoot": True}}], "os": {"name": "windows"}},
            25,
        ),
    ],
)
def test_field_allowed_since_a_later_version(level: str, pod: Obj, since: int) -> None:
    assert details(level, pod, since - 1) != ""
    assert details(level, pod, since) == details(level, pod) == ""


@pytest.mark.parametrize(
    ("level", "pod", "since"),
    [
        ("baseline", spec({**container(), "readinessProbe": {"tcpSocket": {"port": 1, "host": "h"}}}), 34),
        ("restricted", spec(container(allowPrivilegeEscalation=True)), 8),
        ("restricted", spec(container(runAsUser=0)), 23),
        ("restricted", spec(container(capabilities=None)), 22),
        ("restricted", spec(container(seccompProfile=None)), 19),
    ],
)
def test_field_forbidden_since_a_later_version(level: str, pod: Obj, since: int) -> None:
    assert details(level, pod, since - 1) == ""
    assert details(level, pod, since) != ""


def test_user_namespace_does_not_allow_unmasked_proc_mount_in_restricted() -> None:
    told = details("restricted", spec(container(procMount="Unmasked"), hostUsers=False))
    assert told == 'procMount (container "a" must not set securityContext.procMount to "Unmasked")'


def test_legacy_seccomp_and_apparmor_annotations_are_checked() -> None:
    apparmor = {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
    assert details("baseline", spec(), **apparmor) == (
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/a="unconfined"")'
    )
    seccomp = {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}
    assert details("baseline", spec(), 18, **seccomp) == (
        'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    )
    assert details("baseline", spec(), 19, **seccomp) == ""


PREFIX = "pod-security.kubernetes.io/"


@pytest.mark.parametrize(
    ("labels", "enforce", "audit", "warn"),
    [
        ({}, "privileged:latest", "privileged:latest", "privileged:latest"),
        ({"enforce": "baseline"}, "baseline:latest", "privileged:latest", "baseline:latest"),
        ({"enforce": "baseline", "enforce-version": "v1.30"}, "baseline:v1.30", "privileged:latest", "baseline:v1.30"),
        ({"enforce": "baseline", "warn": "privileged"}, "baseline:latest", "privileged:latest", "privileged:latest"),
        ({"enforce": "baseline", "warn-version": "v1.1"}, "baseline:latest", "privileged:latest", "baseline:v1.1"),
        ({"enforce": "nonsense"}, "restricted:latest", "privileged:latest", "privileged:latest"),
        ({"audit": "x", "warn": "y"}, "privileged:latest", "privileged:latest", "privileged:latest"),
        (
            {"audit": "restricted", "audit-version": "1.2"},
            "privileged:latest",
            "restricted:latest",
            "privileged:latest",
        ),
    ],
)
def test_namespace_labels_set_pod_security_policy(labels: dict[str, str], enforce: str, audit: str, warn: str) -> None:
    policy, _ = policy_of({f"{PREFIX}{name}": value for name, value in labels.items()}, Policy())
    assert (str(policy.enforce), str(policy.audit), str(policy.warn)) == (enforce, audit, warn)


def test_invalid_pod_security_labels_are_reported() -> None:
    _, errors = policy_of({f"{PREFIX}enforce": "strict", f"{PREFIX}warn-version": "v1.03"}, Policy())
    assert [str(error) for error in errors] == [
        f'metadata.labels[{PREFIX}enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted',
        f'metadata.labels[{PREFIX}warn-version]: Invalid value: "v1.03": must be "latest" or "v1.x"',
    ]
