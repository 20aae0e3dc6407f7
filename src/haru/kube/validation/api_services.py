"""APIServices: the name that follows from the group version, priorities, and who is believed to be the server.

Source: the validation of apiregistration.k8s.io/v1, as behaviour. That a group version which is built in stays here is
Haru's own rule.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from haru.kube import names
from haru.kube.api_services import name_of
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.kinds import group_versions
from haru.kube.meta import Obj
from haru.kube.validation.common import items, part
from haru.kube.validation.metadata import validate_fixed_name

_STATUSES = ("True", "False", "Unknown")


def validate_api_service(service: Obj) -> list[FieldError]:
    """An APIService that is created, or changed."""
    return list(_errors(service))


def validate_api_service_status(new: Obj, old: Obj) -> list[FieldError]:
    """Validate the status of an APIService."""
    conditions = items(part(new, "status"), "conditions")
    return [
        not_supported(f"status.conditions[{index}].status", condition.get("status") or "", _STATUSES)
        for index, condition in enumerate(conditions)
        if condition.get("status") not in _STATUSES
    ]


def _errors(service: Obj) -> Iterator[FieldError]:
    spec, metadata = part(service, "spec"), part(service, "metadata")
    group, version = spec.get("group") or "", spec.get("version") or ""
    if not names.is_path_segment_name(metadata.get("name") or ""):
        wanted = name_of(group, version)
        yield from validate_fixed_name(metadata, wanted, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    for problem in names.is_dns1123_subdomain(group) if group else ():
        yield invalid("spec.group", group, problem)
    for problem in names.is_dns1035_label(version):
        yield invalid("spec.version", version, problem)
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        priority = spec.get(field) or 0
        if not 0 < priority <= most:
            yield invalid(f"spec.{field}", priority, f"must be positive and less than {most}")
    yield from _server(spec, group, version)


def _server(spec: Obj, group: str, version: str) -> Iterator[FieldError]:
    service, bundle, insecure = spec.get("service"), spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify"))
    if service is None:
        if bundle:
            yield invalid("spec.caBundle", f"{_length(bundle)} bytes", "local APIServices may not have a caBundle")
        if insecure:
            yield invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    if (group, version) in group_versions():
        served = f"{group}/{version}" if group else version
        yield forbidden("spec.service", f"{served} is built in: the API server serves it itself")
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"spec.service.{name}")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid("spec.service.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


def _length(bundle: str) -> int:
    try:
        return len(base64.b64decode(bundle))
    except (binascii.Error, ValueError):
        return len(bundle)
