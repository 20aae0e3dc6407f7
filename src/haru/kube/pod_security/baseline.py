"""The checks of the level baseline: nothing that is known to break out of a container."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of
from haru.kube.pod_security.checks import (
    Check,
    Finding,
    Look,
    context_of,
    named,
    plural,
    quoted,
    setters,
)

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
PROFILES = ("RuntimeDefault", "Localhost")
_DEFAULT_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_SELINUX_1_0 = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_SELINUX_1_31 = _SELINUX_1_0 | {"container_engine_t"}
_SYSCTLS_1_0 = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    )
)
_SYSCTLS_1_27 = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29 = _SYSCTLS_1_27 | {
    f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
}
SAFE_SYSCTLS = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def in_user_namespace(spec: Obj) -> bool:
    """Whether a pod says that its users are not the node's (KEP-127)."""
    return spec.get("hostUsers") is False


def bad_profiles(spec: Obj, member: str) -> tuple[bool, list[str], set[str]]:
    """Whether the pod, and which containers, set a profile that switches protection off; and which ones."""
    values: set[str] = set()

    def is_bad(holder: Obj) -> bool:
        profile = context_of(holder).get(member)
        if profile is None or profile.get("type") in PROFILES:
            return False
        values.add(str(profile.get("type") or ""))
        return True

    pod = is_bad(spec)
    return pod, [container["name"] for container in containers_of(spec) if is_bad(container)], values


def _app_armor(metadata: Obj, spec: Obj) -> Finding | None:
    pod, containers, values = bad_profiles(spec, "appArmorProfile")
    annotations = sorted(
        f'{name}="{value}"'
        for name, value in (metadata.get("annotations") or {}).items()
        if name.startswith(_APP_ARMOR) and not (value in ("", "runtime/default") or str(value).startswith("localhost/"))
    )
    if not (pod or containers or annotations):
        return None
    found = [*sorted(values), *annotations]
    who = [
        each for each in (setters(pod, containers), plural("annotation", annotations) if annotations else "") if each
    ]
    detail = f"{' and '.join(who)} must not set AppArmor profile type to {quoted(found)}"
    return Finding(plural("forbidden AppArmor profile", found), detail)


def _capabilities(metadata: Obj, spec: Obj) -> Finding | None:
    bad: list[str] = []
    added: set[str] = set()
    for container in containers_of(spec):
        more = set((context_of(container).get("capabilities") or {}).get("add") or ()) - _DEFAULT_CAPABILITIES
        if more:
            bad.append(container["name"])
            added |= more
    if not bad:
        return None
    detail = f"{named('container', bad)} must not include {quoted(sorted(added))} in securityContext.capabilities.add"
    return Finding("non-default capabilities", detail)


def _host_namespaces(metadata: Obj, spec: Obj) -> Finding | None:
    found = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return Finding("host namespaces", ", ".join(found)) if found else None


def _host_path_volumes(metadata: Obj, spec: Obj) -> Finding | None:
    found = [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Finding("hostPath volumes", named("volume", found)) if found else None


def _host_ports(metadata: Obj, spec: Obj) -> Finding | None:
    bad: list[str] = []
    ports: set[str] = set()
    for container in containers_of(spec):
        own = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if own:
            bad.append(container["name"])
            ports |= own
    if not bad:
        return None
    listed = sorted(ports)
    return Finding(
        "hostPort", f"{named('container', bad)} {_use(bad)} {plural('hostPort', listed)} {', '.join(listed)}"
    )


def _use(who: list[str]) -> str:
    return "uses" if len(who) == 1 else "use"


def _probe_hosts(metadata: Obj, spec: Obj) -> Finding | None:
    bad: set[str] = set()
    hosts: set[str] = set()
    for container in containers_of(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(name) or {} for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get(name) or {} for name in ("postStart", "preStop")]
        given = ((handler.get(name) or {}).get("host") for handler in handlers for name in ("httpGet", "tcpSocket"))
        own = {str(host) for host in given if host}
        if own:
            bad.add(container["name"])
            hosts |= own
    if not bad:
        return None
    who, listed = sorted(bad), sorted(hosts)
    word = plural("probe or lifecycle host", listed)
    return Finding("probe or lifecycle host", f"{named('container', who)} {_use(who)} {word} {quoted(listed)}")


def _privileged(metadata: Obj, spec: Obj) -> Finding | None:
    bad = [container["name"] for container in containers_of(spec) if context_of(container).get("privileged")]
    if not bad:
        return None
    return Finding("privileged", f"{named('container', bad)} must not set securityContext.privileged=true")


def masked_proc_only(metadata: Obj, spec: Obj) -> Finding | None:
    """Whether /proc keeps its masks."""
    bad: list[str] = []
    types: set[str] = set()
    for container in containers_of(spec):
        mount = context_of(container).get("procMount")
        if mount is not None and mount != "Default":
            bad.append(container["name"])
            types.add(mount)
    if not bad:
        return None
    detail = f"{named('container', bad)} must not set securityContext.procMount to {quoted(sorted(types))}"
    return Finding("procMount", detail)


def unless_in_user_namespace(look: Look) -> Look:
    """A check that what runs in a user namespace of its own passes (KEP-127)."""

    def relaxed(metadata: Obj, spec: Obj) -> Finding | None:
        return None if in_user_namespace(spec) else look(metadata, spec)

    return relaxed


def _seccomp_annotations(metadata: Obj, spec: Obj) -> Finding | None:
    annotations = metadata.get("annotations") or {}
    names = [_SECCOMP_POD, *(f"{_SECCOMP_CONTAINER}{container['name']}" for container in containers_of(spec))]
    given = {name: str(annotations[name]) for name in names if name in annotations}
    bad = sorted(f'{name}="{value}"' for name, value in given.items() if not _is_good_annotation(value))
    return Finding("seccompProfile", f"forbidden {plural('annotation', bad)} {', '.join(bad)}") if bad else None


def _is_good_annotation(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def seccomp_profiles(metadata: Obj, spec: Obj) -> Finding | None:
    """Whether nobody switches seccomp off."""
    pod, containers, values = bad_profiles(spec, "seccompProfile")
    if not (pod or containers):
        return None
    detail = f"{setters(pod, containers)} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return Finding("seccompProfile", detail)


def _selinux(allowed: Collection[str], metadata: Obj, spec: Obj) -> Finding | None:
    types: set[str] = set()
    faults: set[str] = set()

    def is_bad(holder: Obj) -> bool:
        options = context_of(holder).get("seLinuxOptions")
        if options is None:
            return False
        own = {name for name in ("user", "role") if options.get(name)}
        if (options.get("type") or "") not in allowed:
            types.add(options["type"])
            own.add("type")
        faults.update(own)
        return bool(own)

    pod = is_bad(spec)
    containers = [container["name"] for container in containers_of(spec) if is_bad(container)]
    if not (pod or containers):
        return None
    details = [named("type", sorted(types))] if types else []
    details += [f"{name} may not be set" for name in ("user", "role") if name in faults]
    detail = f"{setters(pod, containers)} set forbidden securityContext.seLinuxOptions: {'; '.join(details)}"
    return Finding("seLinuxOptions", detail)


def _sysctls(allowed: Collection[str], metadata: Obj, spec: Obj) -> Finding | None:
    listed: list[dict[str, Any]] = context_of(spec).get("sysctls") or []
    bad = [sysctl["name"] for sysctl in listed if sysctl.get("name") not in allowed]
    return Finding("forbidden sysctls", ", ".join(bad)) if bad else None


def _windows_host_process(metadata: Obj, spec: Obj) -> Finding | None:
    def is_bad(holder: Obj) -> bool:
        return bool((context_of(holder).get("windowsOptions") or {}).get("hostProcess"))

    pod, bad = is_bad(spec), [container["name"] for container in containers_of(spec) if is_bad(container)]
    if not (pod or bad):
        return None
    return Finding("hostProcess", f"{setters(pod, bad)} must not set securityContext.windowsOptions.hostProcess=true")


BASELINE: tuple[Check, ...] = (
    Check("appArmorProfile", ((0, _app_armor),)),
    Check("capabilities_baseline", ((0, _capabilities),)),
    Check("hostNamespaces", ((0, _host_namespaces),)),
    Check("hostPathVolumes", ((0, _host_path_volumes),)),
    Check("hostPorts", ((0, _host_ports),)),
    Check("hostProbesAndHostLifecycle", ((34, _probe_hosts),)),
    Check("privileged", ((0, _privileged),)),
    Check("procMount", ((0, masked_proc_only), (35, unless_in_user_namespace(masked_proc_only)))),
    Check("seLinuxOptions", ((0, partial(_selinux, _SELINUX_1_0)), (31, partial(_selinux, _SELINUX_1_31)))),
    Check("seccompProfile_baseline", ((0, _seccomp_annotations), (19, seccomp_profiles))),
    Check(
        "sysctls",
        (
            (0, partial(_sysctls, _SYSCTLS_1_0)),
            (27, partial(_sysctls, _SYSCTLS_1_27)),
            (29, partial(_sysctls, _SYSCTLS_1_29)),
            (32, partial(_sysctls, SAFE_SYSCTLS)),
        ),
    ),
    Check("windowsHostProcess", ((0, _windows_host_process),)),
)
"""In the order of their names, in which findings are told."""
