"""What is odd about a pod: fields that mean nothing any more, and those that contradict each other.

Source: kube-apiserver 1.36's warnings for pods, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.kube.apparmor import ANNOTATION, profile_of
from haru.kube.known_specs import KnownSpecs
from haru.kube.meta import Obj
from haru.kube.warnings.claims import fraction_warnings, volume_claim_warnings
from haru.kube.warnings.nodes import DEPRECATED_LABELS, selector_term_warnings


def overlap_warnings(volume: Obj) -> Iterator[str]:
    """Paths of a volume's items that lie in each other's way."""
    named = f'volume "{volume.get("name") or ""}"'
    for kind, name in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
        source = volume.get(kind)
        if source and source.get("items"):
            yield from _overlaps(_Files(), _paths(source), f"{named} ({_told(kind, source, name)})")
    projected = volume.get("projected")
    if not projected:
        return
    sources = projected.get("sources") or ()
    filled = [_projected(source) for source in sources]
    flat = [path for paths, _ in filled for path in paths]
    if all(sources) and len(set(flat)) == len(flat) and not any("/" in path for path in flat):
        return  # as nearly all are
    files = _Files()
    for source, (paths, told) in zip(sources, filled, strict=True):
        if not source:
            yield f"{named} (Projected) has no sources provided"
        yield from _overlaps(files, paths, f"{named} (Projected {told})")


def _projected(source: Obj) -> tuple[list[str], str]:
    """The paths that one source of a projected volume fills, and what it is called."""
    for kind in ("configMap", "secret", "downwardAPI"):
        found = source.get(kind)
        if found and found.get("items"):
            return _paths(found), _told(kind, found, "" if kind == "downwardAPI" else "name")
    if token := source.get("serviceAccountToken"):
        return [token.get("path") or ""], "ServiceAccountToken"
    if bundle := source.get("clusterTrustBundle"):
        name = bundle.get("name") or bundle.get("signerName") or ""
        return [bundle.get("path") or ""], f'ClusterTrustBundle "{name}"'
    return [], ""


def _told(kind: str, source: Obj, name: str) -> str:
    word = kind[0].upper() + kind[1:]
    return f'{word} "{source.get(name) or ""}"' if name else word


def _paths(source: Obj) -> list[str]:
    return [item.get("path") or "" for item in source["items"]]


def _overlaps(files: _Files, paths: Sequence[str], where: str) -> Iterator[str]:
    for path in paths:
        path = path.rstrip("/")
        other = files.add(path) if path else ""
        if other:
            yield f'{where}: overlapping paths: "{path}" with "{other}"'


class _Files:
    """The paths that are taken, as a tree: however many and long they are, each is walked once."""

    __slots__ = ("_below", "_first", "_taken")

    def __init__(self) -> None:
        self._below: dict[str, _Files] = {}
        self._first = ""
        self._taken = False

    def add(self, path: str) -> str:
        """Take a path; a path that lies in its way, if there is one."""
        at, other = self, ""
        for name in path.split("/"):
            if at._taken and not other:
                other = at._first
            following = at._below.get(name)
            if following is None:
                following = at._below[name] = _Files()
                following._first = path
            at = following
        if not other and (at._taken or at._below):
            other = at._first
        if not at._taken:
            at._taken, at._first = True, path
        return other


_BYTES = ("memory", "ephemeral-storage")
_NO_SELECTOR = "a null labelSelector results in matching no pod"
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR_ADVICE = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_VOLUME_PATHS = {"storageos": "storageOS"}
"""What 1.36 calls a field in a warning, where that is another word than the API's."""


_UNREMARKABLE = KnownSpecs()
"""Specs that nobody is warned of."""


def pod_warnings(pod: Obj, template: str = "") -> Iterator[str]:
    """List the warnings about a pod, or a pod template at the path `template`."""
    spec, before = pod.get("spec") or {}, f"{template}." if template else ""
    annotations = (pod.get("metadata") or {}).get("annotations")
    path = f"{before}spec"
    told = (
        _annotations(annotations, spec, f"{before}metadata.annotations", in_template=bool(template))
        if annotations
        else iter(())
    )
    key = _UNREMARKABLE.key(spec)
    if key in _UNREMARKABLE:
        yield from told
        return
    is_unremarkable = True
    for warning in _placement(spec, path):
        is_unremarkable = False
        yield warning
    yield from told
    for warning in _rest(spec, path):
        is_unremarkable = False
        yield warning
    if is_unremarkable:
        _UNREMARKABLE.add(key)


def _rest(spec: Obj, path: str) -> Iterator[str]:
    if volumes := spec.get("volumes"):
        yield from _volumes(volumes, path)
    yield from _repeated(spec.get("hostAliases"), "ip", f"{path}.hostAliases")
    if secrets := spec.get("imagePullSecrets"):
        yield from _repeated(secrets, "name", f"{path}.imagePullSecrets")
        for number, secret in enumerate(secrets):
            if not secret.get("name"):
                yield f'{path}.imagePullSecrets[{number}].name: invalid empty name ""'
    yield from fraction_warnings(spec.get("overhead"), f"{path}.overhead", _BYTES)
    containers = list(_containers(spec, path))
    for container, where in containers:
        yield from _container(container, where)
    if any("ports" in container for container, _ in containers):
        yield from _ports(containers)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )


def _containers(spec: Obj, path: str) -> Iterator[tuple[Obj, str]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for number, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{number}]"


def _placement(spec: Obj, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in DEPRECATED_LABELS:
            yield f"{path}.nodeSelector[{key}]: {DEPRECATED_LABELS[key]}"
    for number, spread in enumerate(spec.get("topologySpreadConstraints") or ()):
        where, key = f"{path}.topologySpreadConstraints[{number}]", spread.get("topologyKey")
        if key in DEPRECATED_LABELS:
            yield f"{where}.topologyKey: {key} is {DEPRECATED_LABELS[key]}"
        if spread.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NO_SELECTOR}"
    if affinity := spec.get("affinity"):
        yield from _affinity(affinity, f"{path}.affinity")


def _affinity(affinity: Obj, path: str) -> Iterator[str]:
    required, preferred = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
    nodes = affinity.get("nodeAffinity") or {}
    for number, term in enumerate((nodes.get(required) or {}).get("nodeSelectorTerms") or ()):
        yield from selector_term_warnings(term, f"{path}.nodeAffinity.{required}.nodeSelectorTerms[{number}]")
    for number, term in enumerate(nodes.get(preferred) or ()):
        where = f"{path}.nodeAffinity.{preferred}[{number}].preference"
        yield from selector_term_warnings(term.get("preference") or {}, where)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for number, term in enumerate(pods.get(required) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{required}[{number}].labelSelector: {_NO_SELECTOR}"
        for number, term in enumerate(pods.get(preferred) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{preferred}[{number}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"


def _annotations(annotations: Obj, spec: Obj, path: str, *, in_template: bool) -> Iterator[str]:
    for key, said in _ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}[{key}]: {said}"
    security = spec.get("securityContext") or {}
    if _SECCOMP_POD in annotations and not security.get("seccompProfile"):
        yield f"{path}[{_SECCOMP_POD}]: {_SECCOMP}"
    for container, _ in _containers(spec, ""):
        own = container.get("securityContext") or {}
        seccomp, apparmor = (f"{prefix}{container['name']}" for prefix in (_SECCOMP_CONTAINER, ANNOTATION))
        if seccomp in annotations and not own.get("seccompProfile"):
            yield f"{path}[{seccomp}]: {_SECCOMP}"
        # Of a pod the annotation becomes the field, which is warned of where that is done.
        if in_template and apparmor in annotations and not own.get("appArmorProfile"):
            whole = security.get("appArmorProfile")
            if whole and whole == profile_of(annotations[apparmor]):
                continue
            yield f"{path}[{apparmor}]: {APPARMOR_ADVICE}"


def _volumes(volumes: Sequence[Obj], path: str) -> Iterator[str]:
    for number, volume in enumerate(volumes):
        where = f"{path}.volumes[{number}]"
        for name in sorted(_VOLUMES.keys() & volume.keys()):
            yield f"{where}.{_VOLUME_PATHS.get(name, name)}: {_VOLUMES[name]}"
        if ephemeral := volume.get("ephemeral"):
            claim = ephemeral.get("volumeClaimTemplate") or {}
            yield from volume_claim_warnings(claim.get("spec") or {}, f"{where}.ephemeral.volumeClaimTemplate.spec")
        yield from overlap_warnings(volume)


def _repeated(entries: Sequence[Obj] | None, key: str, path: str) -> Iterator[str]:
    if not entries or len(entries) < 2:
        return
    seen = set()
    for number, entry in enumerate(entries):
        value = entry.get(key) or ""
        if value in seen:
            yield f'{path}[{number}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _container(container: Obj, path: str) -> Iterator[str]:
    if resources := container.get("resources"):
        for kind in ("limits", "requests"):
            yield from fraction_warnings(resources.get(kind), f"{path}.resources.{kind}", _BYTES)
    variables = container.get("env") or ()
    if len(variables) < 2:
        return
    seen = set()
    for number, variable in enumerate(variables):
        name, value = variable["name"], variable.get("value") or ""
        # What refers to the former value, and adds to it, is meant.
        own = f"$({name})"
        if name in seen and (variable.get("valueFrom") is not None or value == own or own not in value):
            yield (
                f'{path}.env[{number}]: hides previous definition of "{name}", which may be dropped when using apply'
            )
        seen.add(name)


def _ports(containers: Sequence[tuple[Obj, str]]) -> Iterator[str]:
    known: dict[tuple[int, str], _SamePorts] = {}
    for container, path in containers:
        for number, port in enumerate(container.get("ports") or ()):
            where, host, host_port = f"{path}.ports[{number}]", port.get("hostIP") or "", port.get("hostPort") or 0
            protocol = port.get("protocol") or "TCP"
            if host and not host_port:
                described = (
                    f"Name:{port.get('name') or ''} HostPort:0 ContainerPort:{port['containerPort']} "
                    f"Protocol:{protocol} HostIP:{host}"
                )
                yield f"{where}: hostIP set without hostPort: {{{described}}}"
            same = known.get((port["containerPort"], protocol))
            if same is None:
                same = known[port["containerPort"], protocol] = _SamePorts()
            for conflict, other in same.add(where, host, host_port):
                yield f"{where}: {conflict} port definition with {other}"


class _SamePorts:
    """The definitions of one port and protocol, by what others may clash with."""

    __slots__ = ("_alike", "_listed", "_lone", "_of_port")

    def __init__(self) -> None:
        self._listed: list[str] = []
        self._alike: dict[tuple[str, int], list[int]] = {}  # by address and port of the host
        self._of_port: dict[tuple[int, bool], list[int]] = {}  # by port of the host and whether an address is given
        self._lone: list[int] = []  # without a port of the host

    def add(self, where: str, host: str, host_port: int) -> list[tuple[str, str]]:
        """One definition more: those that were there before it and clash, each with how."""
        alike = self._alike.setdefault((host, host_port), [])
        clashes = dict.fromkeys(self._lone if host_port else range(len(self._listed)), "overlapping")
        if host_port:
            clashes |= dict.fromkeys(self._of_port.get((host_port, not host), ()), "dangerously ambiguous")
        clashes |= dict.fromkeys(alike, "duplicate")
        found = [(clashes[number], self._listed[number]) for number in sorted(clashes)]
        number = len(self._listed)
        self._listed.append(where)
        alike.append(number)
        self._of_port.setdefault((host_port, bool(host)), []).append(number)
        if not host_port:
            self._lone.append(number)
        return found
