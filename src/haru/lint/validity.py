"""The stage validation: the API's own rules and words, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from haru.cel.selectors import check_selector
from haru.kube.decoding import suggest
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import FieldError
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj
from haru.kube.names import generate_name
from haru.kube.strategy import prepare_for_create
from haru.kube.validation import validate_create
from haru.lint import rewriting
from haru.lint.findings import Draft, Edit, Remove, Replace
from haru.lint.manifests import Item
from haru.lint.paths import get, last_name
from haru.lint.published import CLASSES, STANDARD, STANDARD_DOMAIN, SYNONYMS, plain

_GATES = FeatureGates.accelerator_defaults()
_EPOCH = "1970-01-01T00:00:00Z"
_BACKQUOTED = re.compile(r"`(\w+)`")
_RENAMED = {"Single": "Pod", "All": "PodGroup"}
"""Names of a later release -> those of 1.36."""
_QUOTED = re.compile(r'"([^"]*)"')


def prepare(item: Item, pruned: Obj) -> Obj:
    """The object as it would be judged: with a name, a namespace and defaults."""
    assert item.kind is not None
    metadata = dict(pruned.get("metadata") or {})
    if item.kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    if metadata.get("generateName") and not metadata.get("name"):
        metadata["name"] = generate_name(metadata["generateName"], "xxxxx")
    # The uid is what the server gives; a Job's selector is made of it.
    metadata["uid"] = "00000000-0000-0000-0000-000000000000"
    return apply_defaults({**pruned, "metadata": metadata}, item.kind, _GATES)


def check_validity(item: Item, schema: Sequence[Draft]) -> list[Draft]:
    """What the API refuses in the object; what only follows from an earlier finding is left out."""
    kind = item.kind
    assert kind is not None
    judged = prepare_for_create(item.obj, kind, _GATES, _EPOCH)
    errors = validate_create(judged, kind, _GATES, lambda expression: check_selector(expression, _GATES))
    if kind.group == "resource.k8s.io" and kind.version == "v1beta1":
        errors = [replace(error, field=_path_in_v1beta1(error.field)) for error in errors]
    followed = [draft.path for draft in schema if draft.check in ("value-type", "field-version")]
    meant = {draft.edits[0].key for draft in schema if draft.edits and hasattr(draft.edits[0], "key")}
    drafts = []
    for error in errors:
        path = error.field
        if any(_concerns(path, other) for other in followed):
            continue
        if ".resources.requests[" in path and get(item.raw, path) is None:
            continue  # requests that defaulting made of the limits, which are told already
        if error.type == "FieldValueRequired" and last_name(path) in meant:
            continue
        drafts.append(_draft(item, error))
    return list(dict.fromkeys(drafts))


def _path_in_v1beta1(path: str) -> str:
    """Where v1beta1 has what validation names by its place in v1."""
    path = re.sub(r"(\.requests\[\d+\])\.exactly\b", r"\1", path)
    return re.sub(r"^(spec\.devices\[\d+\])\.(?!name$)", r"\1.basic.", path)


def _concerns(path: str, other: str) -> bool:
    """Whether a fault of validation lies where decoding already dropped something."""
    if path.startswith(other):
        return True
    name = last_name(other)
    above = other.removesuffix(name).removesuffix(".")
    return path in (above, f"{above}.exactly") or path.startswith(f"{above}.exactly.")


def _draft(item: Item, error: FieldError) -> Draft:
    for advise in _ADVICE:
        draft = advise(item, error)
        if draft is not None:
            return draft
    return Draft("field-invalid", error.field, error.body(), "", *_generic(item, error))


def _generic(item: Item, error: FieldError) -> tuple[str, tuple[Edit, ...]]:
    name = last_name(error.field)
    if error.type == "FieldValueNotSupported":
        listed = _QUOTED.findall(error.detail)
        close = suggest(str(error.value), listed)
        if close:
            return f'did you mean "{close}"?', (Replace(error.field, close),)
        renamed = _RENAMED.get(str(error.value), "")
        if renamed in listed:
            return f"{renamed}, as 1.36 calls it", (Replace(error.field, renamed),)
        return (f"one of {', '.join(listed)}" if listed else ""), ()
    if name == "count" and "allocationMode" in error.detail:
        return "leave count out: All takes every device", (Remove(error.field),)
    if name == "value" and "must be empty for operator" in error.detail:
        return "leave value out: Exists matches every value", (Remove(error.field),)
    if error.type == "FieldValueRequired":
        return _REQUIRED.get(name, f"add {name}"), ()
    if error.type == "FieldValueDuplicate":
        return "give each entry another name", ()
    if name in _ADVICE_BY_NAME:
        return _ADVICE_BY_NAME[name], ()
    for pattern, advice in _WORDED:
        if pattern in error.detail:
            return advice, ()
    members = _BACKQUOTED.findall(error.detail)
    if members and "one of" in error.detail:
        word = "keep" if "at most one" in error.detail or "multiple" in error.detail else "write"
        return f"{word} one of {', '.join(members)}", ()
    if "standard resource" in error.detail and str(error.value) in CLASSES:
        return "devices of a class are asked for through a ResourceClaim (or an extended resource: nvidia.com/gpu)", ()
    if isinstance(error.value, str) and "RFC 1123" in error.detail:
        mended = re.sub(r"[^a-z0-9.-]+", "-", error.value.lower()).strip("-.")
        return (f"for example {mended}" if mended and mended != error.value else ""), ()
    return "", ()


_REQUIRED = {
    "containers": "add at least one container with name and image",
    "spec": "set exactly one of nodeName, nodeSelector, allNodes or perDeviceNodeSelection",
    "deviceClassName": "add deviceClassName, for example gpu.nvidia.com",
    "name": "add a name",
    "image": "add an image",
    "selector": "add a selector that matches the template's labels",
    "parameters": "add parameters with apiVersion and kind",
    "minCount": "add minCount: how many pods must start together",
    "restartPolicy": "add restartPolicy: Never or OnFailure",
    "template": "add a pod template",
}
_ADVICE_BY_NAME = {
    "resourceSliceCount": "resourceSliceCount: the number of slices of the pool, 1 for a single one",
    "minCount": "minCount: 1 or more, as many pods as must start together",
    "schedulingPolicy": "keep either basic: {} or gang: {minCount: N}",
    "count": "count: 1 or more",
}
_WORDED = (
    ("the name of a request in the claim", "name one of the claim's requests, or REQUEST/ALTERNATIVE"),
    ("exactly one of `exactly` or `firstAvailable`", "keep either exactly or firstAvailable"),
    ("field is immutable", "create another object instead"),
    ("must be a valid JSON object", "write a mapping, with apiVersion and kind"),
)


# --- advice


def _selector(item: Item, error: FieldError) -> Draft | None:
    if not error.field.endswith(".cel.expression"):
        return None
    expression = error.value if isinstance(error.value, str) else ""
    parts = rewriting.operators(expression)
    if "no matching overload" in error.detail and rewriting.usable(expression, parts):
        new = rewriting.replaced(expression, parts)
        edit = Replace(error.field, new, parts)
        reason = "a Quantity has no operators, nor has a version: compareTo gives -1, 0 or 1"
        return Draft("selector-operator", error.field, error.body(), reason, f"write {new}", (edit,))
    if "no matching overload" in error.detail and "Quantity" in error.detail:
        advice = 'compare quantities with x.compareTo(quantity("16Gi")) >= 0'
        return Draft("selector-operator", error.field, error.body(), "a Quantity has no operators", advice)
    parts = rewriting.domains(expression)
    if rewriting.usable(expression, parts):
        new = rewriting.replaced(expression, parts)
        reason = "attributes and capacity are maps by domain, of maps by name; a name has no hyphen"
        edit = Replace(error.field, new, parts)
        return Draft("selector-invalid", error.field, error.body(), reason, f"write {new}", (edit,))
    return Draft("selector-invalid", error.field, error.body(), "", _compile_advice(error.detail))


_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'|undefined field '([^']*)'")
_KNOWN_WORDS: tuple[str, ...] = (
    "device",
    "driver",
    "attributes",
    "capacity",
    "quantity",
    "semver",
    "compareTo",
    "isGreaterThan",
)
_KNOWN_WORDS += ("isLessThan", "allowMultipleAllocations", "matches", "contains", "startsWith", "endsWith")


def _compile_advice(detail: str) -> str:
    match = _UNDECLARED.search(detail)
    if match is not None:
        word = match[1] or match[2]
        close = suggest(word, _KNOWN_WORDS)
        if close and close != word:
            return f'did you mean "{close}"?'
        return 'an expression sees device.driver, device.attributes["DOMAIN"].NAME and device.capacity["DOMAIN"].NAME'
    if "must evaluate to bool" in detail:
        return "write a condition: something that is true or false for a device"
    if "Syntax error" in detail:
        return "the caret in the message shows where the text cannot be read; texts stand in double quotes"
    return "narrow what the expression walks through" if "cost" in detail else ""


def _attribute_name(item: Item, error: FieldError) -> Draft | None:
    name = last_name(error.field)
    is_constraint = name in ("matchAttribute", "distinctAttribute")
    if not isinstance(error.value, str) or not (is_constraint or ("C identifier" in error.detail)):
        return None
    written = get(item.obj, error.field) if is_constraint else error.value
    written = written if isinstance(written, str) else error.value
    domain, _, short = written.rpartition("/")
    better = _identifier(short)
    standard = _standard(short)
    if standard:
        domain, better = STANDARD_DOMAIN, standard
    new = f"{domain}/{better}" if domain else better
    if is_constraint and not domain:
        advice = f"write DOMAIN/{better}, for example gpu.nvidia.com/{better}"
        return Draft("attribute-name", error.field, error.body(), "constraints compare names with a domain", advice)
    reason = "the part after the slash is an identifier as in C: letters, digits and _"
    edits = (Replace(error.field, new),) if is_constraint and new != written and better else ()
    if not is_constraint and "." in written:
        return Draft("attribute-name", error.field, error.body(), reason, f"write NAME or {written}/NAME")
    if not is_constraint:
        return Draft("attribute-name", error.field, error.body(), reason, f"name it {new}" if new != written else "")
    return Draft("attribute-name", error.field, error.body(), reason, f"write {new}", edits)


def _identifier(text: str) -> str:
    words = [word for word in re.split(r"[^A-Za-z0-9_]+", text) if word]
    return "".join(word if index == 0 else word[:1].upper() + word[1:] for index, word in enumerate(words))


def _standard(name: str) -> str:
    folded = plain(name)
    for known in STANDARD:
        if plain(known) == folded:
            return known
    meant = SYNONYMS.get(folded, "")
    return meant if meant in STANDARD else ""


def _version(item: Item, error: FieldError) -> Draft | None:
    if "semver.org" not in error.detail:
        return None
    better = rewriting.mended_version(str(error.value))
    reason = "a version has three numbers without leading zeros: X.Y.Z"
    edits = (Replace(error.field, better),) if better else ()
    advice = f"write {better}" if better else "use string instead of version for what is no semantic version"
    return Draft("attribute-version", error.field, error.body(), reason, advice, edits)


def _effect(item: Item, error: FieldError) -> Draft | None:
    if last_name(error.field) != "effect" or "NoExecute" not in error.detail or error.value != "PreferNoSchedule":
        return None
    reason = "devices have None, NoSchedule and NoExecute; there is no preference among devices"
    return Draft(
        "taint-effect", error.field, error.body(), reason, "NoSchedule keeps new claims away, None only informs"
    )


_ADVICE: tuple[Callable[[Item, FieldError], Draft | None], ...] = (_selector, _version, _attribute_name, _effect)
