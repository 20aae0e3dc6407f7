"""The objects around pods: services, storage, access, events, quotas."""

from __future__ import annotations

from functools import partial
from typing import Any

from haru.kube.meta import Obj, value_at
from haru.kube.printing.base import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    between,
    condition,
    human_duration,
    joined,
    label_selector,
    meta,
    name,
    pairs,
    printer,
    since,
    spec,
    status,
)

_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def _api_service(obj: Obj) -> list[Any]:
    service = spec(obj).get("service")
    status = condition(obj, "Available")
    available, reason = status.get("status") or "Unknown", status.get("reason")
    if available != "True" and reason:
        available = f"{available} ({reason})"
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    return [name(obj), where, available, age(obj)]


def _data(obj: Obj) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _service(obj: Obj) -> list[Any]:
    kind = spec(obj).get("type", "ClusterIP")
    addresses = spec(obj).get("clusterIPs") or [spec(obj).get("clusterIP")]
    ports = []
    for port in spec(obj).get("ports") or ():
        number = f"{port.get('port')}:{port['nodePort']}" if port.get("nodePort") else str(port.get("port"))
        ports.append(f"{number}/{port.get('protocol', 'TCP')}")
    internal = addresses[0] or NONE
    return [
        name(obj), kind, internal, _external(obj, kind), joined(ports), age(obj), pairs(spec(obj).get("selector"))
    ]  # fmt: skip


def _external(obj: Obj, kind: str) -> str:
    given = list(spec(obj).get("externalIPs") or ())
    if kind == "ExternalName":
        return str(spec(obj).get("externalName", ""))
    if kind == "LoadBalancer":
        return joined([*_assigned(obj), *given], "<pending>")
    return joined(given)


def _assigned(obj: Obj) -> list[str]:
    """The addresses of a load balancer, each once and in order."""
    given = value_at(obj, "status", "loadBalancer", "ingress") or ()
    return sorted({str(item.get("ip") or item.get("hostname") or "") for item in given} - {""})


def _event(obj: Obj) -> list[Any]:
    """Both forms of events: the core group's and that of events.k8s.io."""
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    series = obj.get("series") or {}
    if series:
        last, count = series.get("lastObservedTime"), series.get("count", count)
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    kind = str(about.get("kind", "")).lower()
    return [
        since(last),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message") or obj.get("note") or "").strip(),
        since(first),
        count,
        name(obj),
    ]


def _access_modes(modes: Any) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _volume_claim(obj: Obj) -> list[Any]:
    volume = spec(obj).get("volumeName", "")
    capacity = (value_at(obj, "status", "capacity", "storage") or "0") if volume else ""
    modes = _access_modes(status(obj).get("accessModes")) if volume else ""
    return [
        name(obj),
        "Terminating" if meta(obj).get("deletionTimestamp") else status(obj).get("phase", ""),
        volume,
        capacity,
        modes,
        _class_of(obj, "volume.beta.kubernetes.io/storage-class"),
        spec(obj).get("volumeAttributesClassName", UNSET),
        age(obj),
        spec(obj).get("volumeMode", UNSET),
    ]


def _class_of(obj: Obj, annotation: str) -> str:
    annotations = meta(obj).get("annotations") or {}
    return str(annotations.get(annotation) or spec(obj).get("storageClassName") or "")


def _volume(obj: Obj) -> list[Any]:
    claim = spec(obj).get("claimRef") or {}
    return [
        name(obj),
        value_at(obj, "spec", "capacity", "storage") or "",
        _access_modes(spec(obj).get("accessModes")),
        spec(obj).get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if meta(obj).get("deletionTimestamp") else status(obj).get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class_of(obj, "volume.beta.kubernetes.io/storage-class"),
        spec(obj).get("volumeAttributesClassName") or UNSET,
        status(obj).get("reason", ""),
        age(obj),
        spec(obj).get("volumeMode", UNSET),
    ]


def _storage_class(obj: Obj) -> list[Any]:
    default = (meta(obj).get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    return [
        name(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        age(obj),
    ]


def _some(items: list[str], limit: int = 3, separator: str = ",") -> str:
    """The first few, and how many more."""
    more = f" + {len(items) - limit} more..." if len(items) > limit else ""
    return separator.join(items[:limit]) + more


def _endpoints(obj: Obj) -> list[Any]:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [str(address.get("ip", "")) for address in subset.get("addresses") or ()]
        ports = [port.get("port") for port in subset.get("ports") or ()]
        found += [f"{address}:{port}" for port in ports for address in addresses] if ports else addresses
    return [name(obj), _some(found) or NONE, age(obj)]


def _endpoint_slice(obj: Obj) -> list[Any]:
    ports = [str(port.get("port", port.get("name", "*"))) for port in obj.get("ports") or ()]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [name(obj), obj.get("addressType", ""), _some(ports) or UNSET, _some(addresses) or UNSET, age(obj)]


def _ingress(obj: Obj) -> list[Any]:
    hosts = [str(rule["host"]) for rule in spec(obj).get("rules") or () if rule.get("host")]
    return [
        name(obj),
        spec(obj).get("ingressClassName") or NONE,
        _some(hosts) or "*",
        ",".join(_assigned(obj)),
        "80, 443" if spec(obj).get("tls") else "80",
        age(obj),
    ]


def _ingress_class(obj: Obj) -> list[Any]:
    parameters = spec(obj).get("parameters") or {}
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    text = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}" if parameters else NONE
    return [name(obj), spec(obj).get("controller", ""), text, age(obj)]


def _created(obj: Obj) -> list[Any]:
    return [name(obj), meta(obj).get("creationTimestamp") or UNKNOWN]


def _role_binding(obj: Obj) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {}
    for subject in obj.get("subjects") or ():
        title = str(subject.get("name", ""))
        if subject.get("kind") == "ServiceAccount":
            title = f"{subject.get('namespace', '')}/{title}"
        subjects.setdefault(str(subject.get("kind")), []).append(title)
    who = [", ".join(subjects.get(kind, ())) for kind in ("User", "Group", "ServiceAccount")]
    return [name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age(obj), *who]


def _signing_request(obj: Obj) -> list[Any]:
    seconds = spec(obj).get("expirationSeconds")
    types = [c.get("type") for c in status(obj).get("conditions") or ()]
    words = [word for word in ("Approved", "Denied", "Failed") if word in types] or ["Pending"]
    if status(obj).get("certificate"):
        words.append("Issued")
    return [
        name(obj),
        age(obj),
        spec(obj).get("signerName") or NONE,
        spec(obj).get("username", ""),
        NONE if seconds is None else human_duration(seconds),
        ",".join(words),
    ]


def _quota(obj: Obj) -> list[Any]:
    used = status(obj).get("used") or {}
    texts: dict[bool, list[str]] = {True: [], False: []}
    for resource, hard in sorted((status(obj).get("hard") or {}).items()):
        texts[resource.startswith("limits.")].append(f"{resource}: {used.get(resource, 0)}/{hard}")
    return [name(obj), ", ".join(texts[False]), ", ".join(texts[True]), age(obj)]


def _policy(rules: str) -> Any:
    def cells(obj: Obj) -> list[Any]:
        kind = spec(obj).get("paramKind") or {}
        parameters = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
        return [name(obj), len(spec(obj).get(rules) or ()), parameters, age(obj)]

    return cells


def _policy_binding(obj: Obj) -> list[Any]:
    reference = spec(obj).get("paramRef") or {}
    where = f"{reference['namespace']}/" if reference.get("namespace") else ""
    target = f"{where}{reference.get('name') or '*'}" if reference else UNSET
    return [name(obj), spec(obj).get("policyName", ""), target, age(obj)]


def _attachment(obj: Obj) -> list[Any]:
    volume = value_at(obj, "spec", "source", "persistentVolumeName") or ""
    where = [spec(obj).get("attacher", ""), volume, spec(obj).get("nodeName", "")]
    return [name(obj), *where, bool(status(obj).get("attached")), age(obj)]


_BINDING = "Name Role Age Users* Groups* ServiceAccounts*"
_WEBHOOKS = between(lambda obj: len(obj.get("webhooks") or ()))


def _field(name: str, obj: Obj) -> Any:
    return spec(obj).get(name, "")


_POLICIES = "admissionregistration.k8s.io"
PRINTERS = {
    ("", "namespaces"): printer("Name Status Age", between(lambda obj: status(obj).get("phase", ""))),
    ("", "configmaps"): printer("Name Data Age", between(_data)),
    ("", "secrets"): printer("Name Type Data Age", between(lambda obj: obj.get("type", ""), _data)),
    ("", "serviceaccounts"): printer("Name Age", between()),
    ("", "services"): printer("Name Type Cluster-IP External-IP Port(s) Age Selector*", _service),
    ("", "events"): printer("Last_Seen Type Reason Object Subobject* Source* Message First_Seen* Count* Name*", _event),
    ("", "persistentvolumeclaims"): printer(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode*", _volume_claim
    ),
    ("", "persistentvolumes"): printer(
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
        "VolumeMode*",
        _volume,
    ),
    ("", "endpoints"): printer("Name Endpoints Age", _endpoints),
    ("", "resourcequotas"): printer("Name Request Limit Age", _quota),
    ("", "limitranges"): printer("Name Created_At:date", _created),
    ("storage.k8s.io", "storageclasses"): printer(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", _storage_class
    ),
    ("storage.k8s.io", "volumeattachments"): printer("Name Attacher PV Node Attached:boolean Age", _attachment),
    ("apiextensions.k8s.io", "customresourcedefinitions"): printer("Name Created_At:date", _created),
    ("storage.k8s.io", "csistoragecapacities"): printer("Name Created_At:date", _created),
    ("coordination.k8s.io", "leasecandidates"): printer(
        "Name LeaseName BinaryVersion EmulationVersion Age",
        between(*(partial(_field, name) for name in ("leaseName", "binaryVersion", "emulationVersion"))),
    ),
    ("coordination.k8s.io", "leases"): printer(
        "Name Holder Age", between(lambda obj: spec(obj).get("holderIdentity", ""))
    ),
    ("discovery.k8s.io", "endpointslices"): printer("Name AddressType Ports Endpoints Age", _endpoint_slice),
    ("networking.k8s.io", "ingresses"): printer("Name Class Hosts Address Ports Age", _ingress),
    ("networking.k8s.io", "ingressclasses"): printer("Name Controller Parameters Age", _ingress_class),
    ("networking.k8s.io", "networkpolicies"): printer(
        "Name Pod-Selector Age", between(lambda obj: label_selector(spec(obj).get("podSelector")))
    ),
    ("rbac.authorization.k8s.io", "roles"): printer("Name Created_At:date", _created),
    ("rbac.authorization.k8s.io", "clusterroles"): printer("Name Created_At:date", _created),
    ("rbac.authorization.k8s.io", "rolebindings"): printer(_BINDING, _role_binding),
    ("rbac.authorization.k8s.io", "clusterrolebindings"): printer(_BINDING, _role_binding),
    ("certificates.k8s.io", "certificatesigningrequests"): printer(
        "Name Age SignerName Requestor RequestedDuration Condition", _signing_request
    ),
    ("node.k8s.io", "runtimeclasses"): printer("Name Handler Age", between(lambda obj: obj.get("handler", ""))),
    ("apiregistration.k8s.io", "apiservices"): printer("Name Service Available Age", _api_service),
    (_POLICIES, "mutatingwebhookconfigurations"): printer("Name Webhooks:integer Age", _WEBHOOKS),
    (_POLICIES, "validatingwebhookconfigurations"): printer("Name Webhooks:integer Age", _WEBHOOKS),
    (_POLICIES, "validatingadmissionpolicies"): printer(
        "Name Validations:integer ParamKind Age", _policy("validations")
    ),
    (_POLICIES, "mutatingadmissionpolicies"): printer("Name Mutations:integer ParamKind Age", _policy("mutations")),
    (_POLICIES, "validatingadmissionpolicybindings"): printer("Name PolicyName ParamRef Age", _policy_binding),
    (_POLICIES, "mutatingadmissionpolicybindings"): printer("Name PolicyName ParamRef Age", _policy_binding),
}
PRINTERS["events.k8s.io", "events"] = PRINTERS["", "events"]
