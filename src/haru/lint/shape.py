"""The stages kind and schema: is there such a kind, and does the object have its form?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from haru.kube.decoding import suggest
from haru.kube.decoding_faults import Fault, examine
from haru.kube.kinds import Kind, all_kinds, by_kind
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity
from haru.kube.schema import message_type
from haru.lint import removed_fields
from haru.lint.documents import written
from haru.lint.findings import Draft, Edit, Insert, Remove, Rename, Replace, Unwrap, Wrap
from haru.lint.manifests import RESOURCE, Item
from haru.lint.paths import get, last_name, parent
from haru.lint.rewriting import mended_quantity

_REMOVED_IN = {"v1beta1": "1.38", "v1beta2": "1.39", "v1alpha3": "1.39"}
_INLINE = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def find_kind(item: Item) -> list[Draft]:
    """Sets the item's kind; says what is wrong where there is none. A foreign kind has neither."""
    api_version, name = item.raw.get("apiVersion"), item.raw.get("kind")
    for key, value in (("apiVersion", api_version), ("kind", name)):
        if not isinstance(value, str) or not value:
            what = "is missing" if value in (None, "") else "is no string"
            suggestion = _guess(item.raw, key)
            return [Draft("kind-missing", key, f"Object '{key}' {what}", "every object names its type", suggestion)]
    assert isinstance(api_version, str) and isinstance(name, str)
    item.kind = by_kind(api_version, name)
    if item.kind is not None:
        return list(_deprecated(item, item.kind))
    return list(_no_such_kind(item, api_version, name))


def _guess(raw: Obj, key: str) -> str:
    if key == "apiVersion":
        versions = [kind.api_version for kind in all_kinds() if kind.kind == raw.get("kind")]
        return f"apiVersion: {versions[0]}" if versions else ""
    return ""


def _no_such_kind(item: Item, api_version: str, name: str) -> Iterator[Draft]:
    message = f'no matches for kind "{name}" in version "{api_version}"'
    group = api_version.rpartition("/")[0]
    groups = {kind.group for kind in all_kinds()}
    gone = removed_fields.KINDS.get(name)
    same = [kind for kind in all_kinds() if kind.kind == name]
    if gone is not None and (group in groups or group == "extensions"):
        yield Draft("kind-removed", "kind", message, gone.reason, f"write {gone.remedy}")
        return
    near_group = suggest(group, [g for g in groups if g]) if group and group not in groups else group
    if group not in groups and not near_group and group != "extensions":
        return
    if group not in groups and group.endswith(tuple(f".{g}" for g in groups if g)):
        return  # a custom resource of a project below the same domain, such as gateway.networking.k8s.io
    in_group = [kind for kind in same if kind.group in (group, near_group)] or (same if group == "extensions" else [])
    if in_group:
        best = in_group[0]
        edit: tuple[Edit, ...] = (Replace("apiVersion", best.api_version),)
        served = ", ".join(kind.api_version for kind in in_group)
        check = "kind-version" if group in groups or group == "extensions" else "kind-unknown"
        yield Draft(
            check, "apiVersion", message, f"1.36 has {name} in {served}", f"apiVersion: {best.api_version}", edit
        )
        return
    if group not in groups:
        return
    candidates = {kind.kind for kind in all_kinds() if kind.group == group}
    close = suggest(name, candidates)
    if close:
        version = next(k.api_version for k in all_kinds() if k.group == group and k.kind == close)
        edit = (Replace("kind", close), *(() if version == api_version else (Replace("apiVersion", version),)))
        yield Draft("kind-unknown", "kind", message, "", f"did you mean kind: {close} (apiVersion: {version})?", edit)
    elif same:
        best = same[0]
        reason = f"{name} belongs to another group"
        fix = (Replace("apiVersion", best.api_version),)
        yield Draft("kind-version", "apiVersion", message, reason, f"apiVersion: {best.api_version}", fix)
    else:
        known = ", ".join(sorted(candidates)[:12])
        yield Draft("kind-unknown", "kind", message, f"the group has {known}")


def _deprecated(item: Item, kind: Kind) -> Iterator[Draft]:
    if kind.group != RESOURCE or kind.version not in _REMOVED_IN:
        return
    newer = by_kind(f"{RESOURCE}/v1", kind.kind)
    if newer is None:
        if kind.version == "v1alpha3" and (better := by_kind(f"{RESOURCE}/v1beta2", kind.kind)) is not None:
            newer = better
        else:
            return
    yield Draft(
        "version-deprecated",
        "apiVersion",
        f"{kind.api_version} {kind.kind} is deprecated and gone with {_REMOVED_IN[kind.version]}",
        "the version is not served unless somebody turns it on",
        f"apiVersion: {newer.api_version}",
        tuple(upgrade(item.raw, kind, newer)),
    )


def upgrade(raw: Obj, kind: Kind, to: Kind) -> list[Edit]:
    """The edits that turn an object of an older version into one of `to`."""
    edits: list[Edit] = []
    if kind.version == "v1beta1":
        for place in ("spec.devices.requests", "spec.spec.devices.requests"):
            edits += _wraps(place, get(raw, place))
        devices = get(raw, "spec.devices")
        if isinstance(devices, list):
            edits += [
                Unwrap(f"spec.devices[{index}].basic")
                for index, device in enumerate(devices)
                if isinstance(device, dict) and "basic" in device
            ]
        if kind.kind == "ResourceSlice":
            for name, unset in (("nodeName", ""), ("allNodes", False)):
                if get(raw, f"spec.{name}") == unset and isinstance(get(raw, f"spec.{name}"), type(unset)):
                    edits.append(Remove(f"spec.{name}"))
    return [*edits, Replace("apiVersion", to.api_version)]


def _wraps(place: str, requests: Any) -> list[Edit]:
    found: list[Edit] = []
    for index, request in enumerate(requests if isinstance(requests, list) else ()):
        inline = tuple(name for name in request if name in _INLINE) if isinstance(request, dict) else ()
        if inline and "exactly" not in request and "firstAvailable" not in request:
            found.append(Wrap(f"{place}[{index}]", inline, "exactly"))
    return found


# --- schema


def check_schema(item: Item) -> tuple[Obj, list[Draft]]:
    """The object as a lenient server decodes it, and what a strict one refuses."""
    kind = item.kind
    assert kind is not None
    pruned, faults = examine(item.raw, kind)
    drafts: list[Draft] = []
    seen: set[tuple[str, str]] = set()
    for fault in faults:
        draft = _mismatched(item, fault) if fault.mismatch else _unknown(item, kind, fault)
        once = (
            draft.check,
            removed_fields.without_indexes(parent(fault.path)) if draft.check == "field-version" else fault.path,
        )
        inline = draft.check == "field-version" and isinstance(draft.edits[:1], tuple) and _is_wrap(draft)
        if inline and (draft.check, parent(fault.path)) in seen:
            draft = Draft(draft.check, draft.path, draft.message, draft.reason, draft.suggestion)
        seen.add((draft.check, parent(fault.path)))
        seen.add(once)
        drafts.append(draft)
    return pruned, drafts


def _is_wrap(draft: Draft) -> bool:
    return bool(draft.edits) and isinstance(draft.edits[0], Wrap)


def _mismatched(item: Item, fault: Fault) -> Draft:
    value = get(item.raw, fault.path)
    wanted = fault.wanted
    suggestion = ""
    edits: tuple[Edit, ...] = ()
    is_amount = isinstance(value, str | int | float) and not isinstance(value, bool)
    if wanted.endswith((".DeviceCapacity", ".Counter")) and is_amount:
        suggestion = f"write {{value: {value}}}: the bare quantity belonged to v1alpha3"
        edits = (Replace(fault.path, {"value": value if isinstance(value, str) else str(value)}),)
    elif wanted.endswith(".DeviceAttribute") and isinstance(value, str | int | bool):
        member = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
        suggestion = f"write {{{member}: {value}}}"
        edits = (Replace(fault.path, {member: value}),)
    elif wanted == "string" and isinstance(value, int | float):
        text = written(item.document, fault.path, item.prefix)
        suggestion = (
            f'write "{text}" in quotes: without them it is {"a boolean" if isinstance(value, bool) else "a number"}'
        )
        edits = (Replace(fault.path, text),) if text else ()
    elif wanted in ("int32", "int64") and isinstance(value, str):
        if value.isascii() and value.isdigit() and len(value) < 10:
            suggestion, edits = f"write {value}, without quotes", (Replace(fault.path, int(value)),)
    elif wanted == "quantity" and isinstance(value, str) and (better := mended_quantity(value)):
        suggestion, edits = f"write {better}", (Replace(fault.path, better),)
    elif wanted == "bool" and value in ("true", "false"):
        suggestion, edits = f"write {value}, without quotes", (Replace(fault.path, value == "true"),)
    return Draft(
        "value-type",
        fault.path,
        fault.mismatch,
        "a strict server refuses the whole object",
        suggestion or _expected(fault, value),
        edits,
    )


_A_QUANTITY = "write a number with a unit, such as 500m, 2 or 4Gi"


def _expected(fault: Fault, value: Any) -> str:
    """What stands there usually, where nothing says what was meant."""
    wanted, shown = fault.wanted, json.dumps(value, ensure_ascii=False, default=str)
    if wanted.startswith("[]"):
        return "write a list: each item begins with a dash"
    if wanted == "{}quantity" and isinstance(value, dict):
        wrong = next((name for name, amount in value.items() if not _is_quantity(amount)), "")
        return f"{wrong}: {json.dumps(value[wrong], default=str)} is no quantity: {_A_QUANTITY}" if wrong else ""
    if wanted in ("int32", "int64"):
        of_class = "; the name of a class stands in priorityClassName" if fault.name == "priority" else ""
        return f"write a whole number, not {shown}{of_class}"
    return {"bool": f"write true or false, not {shown}", "quantity": f"{_A_QUANTITY}, not {shown}"}.get(wanted, "")


def _is_quantity(value: Any) -> bool:
    try:
        parse_quantity(value)
    except (ValueError, TypeError):
        return False
    return True


def _unknown(item: Item, kind: Kind, fault: Fault) -> Draft:
    message = f'unknown field "{fault.path}"'
    for find in (_nested_attribute, _other_version, _gone, _misplaced, _near):
        draft = find(item, kind, fault, message)
        if draft is not None:
            return draft
    known = ", ".join(sorted(fault.owner.fields)[:10])
    return Draft("field-unknown", fault.path, message, f"{fault.owner.short_name} has {known}" if known else "")


def _nested_attribute(item: Item, kind: Kind, fault: Fault, message: str) -> Draft | None:
    """`attributes: {gpu.nvidia.com: {model: …}}`: CEL sees maps by domain, slices have one flat map."""
    if fault.owner.short_name != "DeviceAttribute" or not isinstance(get(item.raw, fault.path), dict):
        return None
    above = fault.path.removesuffix(f".{fault.name}")
    domain = above.partition(".attributes.")[2]
    reason = "attributes is one flat map of name or domain/name to a value; only selectors see a map per domain"
    driver = get(item.raw, "spec.driver")
    full = fault.name if domain == driver else f"{domain}/{fault.name}"
    edits = (Unwrap(above),) if domain == driver else ()
    return Draft("field-misplaced", fault.path, message, reason, f"write {full} directly below attributes", edits)


def _other_version(item: Item, kind: Kind, fault: Fault, message: str) -> Draft | None:
    """The shapes of v1beta1 in newer versions, and the reverse."""
    if kind.group != RESOURCE:
        return None
    above = parent(fault.path)
    owner = fault.owner.short_name
    if fault.name == "basic" and owner == "Device":
        return Draft(
            "field-version",
            fault.path,
            message,
            "only v1beta1 nests a device's fields in basic; a lenient server stores the device without any of them",
            f"write the content of basic directly in the device: basic is the shape of v1beta1, not of {kind.version}",
            (Unwrap(fault.path),),
        )
    if owner == "DeviceRequest" and fault.name in _INLINE and kind.version != "v1beta1":
        request = get(item.raw, above)
        inline = tuple(name for name in request if name in _INLINE)
        edits = () if "exactly" in request or "firstAvailable" in request else (Wrap(above, inline, "exactly"),)
        reason = f"the fields of a request stand beside its name in v1beta1 only, in {kind.version} below exactly"
        return Draft("field-version", fault.path, message, reason, f"{above}.exactly.{fault.name}", edits)
    if kind.version == "v1beta1":
        if fault.name == "exactly" and owner == "DeviceRequest":
            reason = "v1beta1 has the fields of a request inline, beside its name"
            suggestion = "apiVersion: resource.k8s.io/v1, which has exactly (or, in v1beta1, its content inline)"
        elif owner == "Device" and fault.name in message_type("io.k8s.api.resource.v1.Device").fields:
            reason = "v1beta1 has a device's fields in basic"
            suggestion = "apiVersion: resource.k8s.io/v1, which has them here (or, in v1beta1, below basic)"
        else:
            return None
        newer = by_kind(f"{RESOURCE}/v1", kind.kind)
        edit = (Replace("apiVersion", newer.api_version),) if newer is not None else ()
        return Draft("field-version", fault.path, message, reason, suggestion, edit)
    return None


def _gone(item: Item, kind: Kind, fault: Fault, message: str) -> Draft | None:
    gone = removed_fields.field(kind.kind, removed_fields.without_indexes(fault.path))
    if gone is None:
        return None
    value, holder = get(item.raw, fault.path), get(item.raw, parent(fault.path))
    edits = _moved(fault, gone, value, holder if isinstance(holder, dict) else {})
    return Draft("field-removed", fault.path, message, gone.reason, gone.remedy, edits)


def _moved(fault: Fault, gone: removed_fields.Gone, value: Any, holder: Obj) -> tuple[Edit, ...]:
    """The edits that bring a field of an old model to its new place."""
    above = parent(fault.path)
    target = gone.remedy.removeprefix(f"{above}.")
    if fault.name in ("source", "spec") and isinstance(value, dict):
        return (Unwrap(fault.path),)
    if fault.name in ("gang", "basic") and "schedulingPolicy" not in holder:
        return (Wrap(above, (fault.name,), "schedulingPolicy"),)
    if fault.name in ("requests", "constraints", "config") and "devices" not in holder:
        return (Wrap(above, tuple(key for key in holder if key in ("requests", "constraints", "config")), "devices"),)
    if fault.name == "devices" and gone.remedy == "spec.spec.devices" and "spec" not in holder:
        return (Wrap(above, ("devices",), "spec"),)
    is_size = fault.name in ("minMember", "minAvailable", "minCount") and isinstance(value, int)
    if is_size and "schedulingPolicy" not in holder:
        return (Insert(above, "schedulingPolicy", {"gang": {"minCount": value}}), Remove(fault.path))
    if fault.name == "resourceClassName" and isinstance(value, str) and "devices" not in holder:
        request = {"name": "device", "exactly": {"deviceClassName": value}}
        return (Insert(above, "devices", {"requests": [request]}), Remove(fault.path))
    if fault.name == "allocationMode" and value in ("Immediate", "WaitForFirstConsumer"):
        return (Remove(fault.path),)
    if target in fault.owner.fields and target not in holder:
        return (Rename(fault.path, target),)
    return ()


def _near(item: Item, kind: Kind, fault: Fault, message: str) -> Draft | None:
    close = suggest(fault.name, fault.owner.fields)
    if not close:
        return None
    holder = get(item.raw, parent(fault.path)) if "." in fault.path else item.raw
    free = isinstance(holder, dict) and close not in holder
    edits = (Rename(fault.path, close),) if free else ()
    suggestion = f'did you mean "{close}"?' + ("" if free else " It is there as well: remove this one")
    return Draft("field-unknown", fault.path, message, "", suggestion, edits)


_SURELY = 0.85
_ELSEWHERE = {
    "resourceClaims": "spec.resourceClaims of the pod; a container names a claim in resources.claims",
    "claims": "resources.claims of the container",
    "deviceClassName": "devices.requests[].exactly.deviceClassName",
    "matchAttribute": "devices.constraints[].matchAttribute",
    "distinctAttribute": "devices.constraints[].distinctAttribute",
    "opaque": "config[].opaque",
    "parameters": "config[].opaque.parameters",
    "tolerations": "devices.requests[].exactly.tolerations",
    "count": "devices.requests[].exactly.count",
    "selectors": "devices.requests[].exactly.selectors",
    "expression": "selectors[].cel.expression",
    "schedulingGroup": "spec.schedulingGroup of the pod (or of the pod template's spec)",
    "minCount": "spec.schedulingPolicy.gang.minCount of a PodGroup",
    "replicas": "spec.replicas",
    "containers": "spec.containers",
    "nodeName": "spec.nodeName",
    "restartPolicy": "spec.restartPolicy of the pod",
}


def _misplaced(item: Item, kind: Kind, fault: Fault, message: str) -> Draft | None:
    where = _ELSEWHERE.get(last_name(fault.path))
    if where is None or (where.startswith("devices.") and kind.group != RESOURCE):
        return None
    if get_close_matches(fault.name, fault.owner.fields, n=1, cutoff=_SURELY):
        return None
    return Draft("field-misplaced", fault.path, message, f"{fault.owner.short_name} has no such field", where)
