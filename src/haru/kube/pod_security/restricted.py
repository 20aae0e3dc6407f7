"""The checks that the level restricted adds: what pods should be that need nothing of their node."""

from __future__ import annotations

from haru.kube.meta import Obj
from haru.kube.pod_containers import containers_of
from haru.kube.pod_security.baseline import (
    bad_profiles,
    masked_proc_only,
    seccomp_profiles,
    unless_in_user_namespace,
)
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

_VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_OTHER_VOLUMES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)


def _unless_windows(look: Look) -> Look:
    """A check of what Windows does not have."""

    def linux(metadata: Obj, spec: Obj) -> Finding | None:
        return None if (spec.get("os") or {}).get("name") == "windows" else look(metadata, spec)

    return linux


def _privilege_escalation(metadata: Obj, spec: Obj) -> Finding | None:
    bad = [c["name"] for c in containers_of(spec) if context_of(c).get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    detail = f"{named('container', bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", detail)


def _capabilities(metadata: Obj, spec: Obj) -> Finding | None:
    keeping: list[str] = []
    adding: list[str] = []
    added: set[str] = set()
    for container in containers_of(spec):
        capabilities = context_of(container).get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or ()):
            keeping.append(container["name"])
        more = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        if more:
            adding.append(container["name"])
            added |= more
    details = [f'{named("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        listed = quoted(sorted(added))
        details.append(f"{named('container', adding)} must not include {listed} in securityContext.capabilities.add")
    return Finding("unrestricted capabilities", "; ".join(details)) if details else None


def _volumes(metadata: Obj, spec: Obj) -> Finding | None:
    bad: list[str] = []
    types: set[str] = set()
    for volume in spec.get("volumes") or ():
        if all(volume.get(name) is None for name in _VOLUMES):
            bad.append(volume["name"])
            types.add(next((name for name in _OTHER_VOLUMES if volume.get(name) is not None), "unknown"))
    if not bad:
        return None
    use, listed = "uses" if len(bad) == 1 else "use", sorted(types)
    detail = f"{named('volume', bad)} {use} {plural('restricted volume type', listed)} {quoted(listed)}"
    return Finding("restricted volume types", detail)


def _non_root(metadata: Obj, spec: Obj) -> Finding | None:
    whole = context_of(spec).get("runAsNonRoot")
    settings = {c["name"]: context_of(c).get("runAsNonRoot") for c in containers_of(spec)}
    bad = [name for name, value in settings.items() if value is False]
    if whole is False or bad:
        detail = f"{setters(whole is False, bad)} must not set securityContext.runAsNonRoot=false"
        return Finding("runAsNonRoot != true", detail)
    silent = [name for name, value in settings.items() if value is None] if not whole else []
    if silent:
        detail = f"pod or {named('container', silent)} must set securityContext.runAsNonRoot=true"
        return Finding("runAsNonRoot != true", detail)
    return None


def _not_user_zero(metadata: Obj, spec: Obj) -> Finding | None:
    pod = context_of(spec).get("runAsUser") == 0
    bad = [container["name"] for container in containers_of(spec) if context_of(container).get("runAsUser") == 0]
    return Finding("runAsUser=0", f"{setters(pod, bad)} must not set runAsUser=0") if pod or bad else None


def _seccomp(metadata: Obj, spec: Obj) -> Finding | None:
    found = seccomp_profiles(metadata, spec)
    if found is not None:
        return found
    pod_is_bad, _, _ = bad_profiles(spec, "seccompProfile")
    if context_of(spec).get("seccompProfile") is not None and not pod_is_bad:
        return None
    silent = [c["name"] for c in containers_of(spec) if context_of(c).get("seccompProfile") is None]
    if not silent:
        return None
    detail = (
        f"pod or {named('container', silent)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"'
    )
    return Finding("seccompProfile", detail)


RESTRICTED: tuple[Check, ...] = (
    Check("allowPrivilegeEscalation", ((8, _privilege_escalation), (25, _unless_windows(_privilege_escalation)))),
    Check(
        "capabilities_restricted",
        ((22, _capabilities), (25, _unless_windows(_capabilities))),
        ("capabilities_baseline",),
    ),
    Check("procMount_restricted", ((35, masked_proc_only),), ("procMount",)),
    Check("restrictedVolumes", ((0, _volumes),), ("hostPathVolumes",)),
    Check("runAsNonRoot", ((0, _non_root), (35, unless_in_user_namespace(_non_root)))),
    Check("runAsUser", ((23, _not_user_zero), (35, unless_in_user_namespace(_not_user_zero)))),
    Check(
        "seccompProfile_restricted",
        ((19, _seccomp), (25, _unless_windows(_seccomp))),
        ("seccompProfile_baseline",),
    ),
)
"""In the order of their names; a check that overrides one of baseline does so from its first revision on."""
