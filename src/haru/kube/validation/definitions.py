"""Rules for CustomResourceDefinitions.

Source: apiextensions.k8s.io/v1 validation, as behaviour; KEP 2332 (structural schemas).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from haru.kube import names
from haru.kube.custom.approval import ANNOTATION, INVALID, MISSING, approval_of
from haru.kube.custom.definitions import is_established, is_shared, schema_path, schemas_of
from haru.kube.custom.field_paths import field_at
from haru.kube.custom.schema_checks import check_schema
from haru.kube.custom.structural_checks import has_default, why_not_structural
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import immutable, same
from haru.kube.validation.metadata import validate_fixed_name
from haru.kube.validation.registrations import REVIEW_VERSIONS, client_config_errors, review_versions

_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8
_NONE: Mapping[str, Obj | None] = {}


def validate_definition(definition: Obj) -> list[FieldError]:
    """Validate a definition that is to be created."""
    spec = definition.get("spec") or {}
    found = list(_spec(spec)) + list(_stored_versions(definition)) + list(_approval(definition, None))
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    rule = 'must be spec.names.plural+"."+spec.group'
    named = validate_fixed_name(definition.get("metadata") or {}, wanted, rule)
    return [*named, *found, *_preserves_unknown(spec)]


def validate_definition_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate the replacement of a definition."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = list(_spec(spec, schemas_of(old), before)) + list(_approval(new, old))
    is_let_go = bool(old["metadata"].get("deletionTimestamp")) and same(spec, before)
    if not is_let_go:  # a definition goes, whatever was written into its status
        found += _stored_versions(new)
    if not before.get("preserveUnknownFields"):
        found += _preserves_unknown(spec)
    names_now, names_before = spec.get("names") or {}, before.get("names") or {}
    found += immutable("spec.group", spec.get("group"), before.get("group"))
    found += immutable("spec.names.plural", names_now.get("plural"), names_before.get("plural"))
    if is_established(old):
        found += immutable("spec.scope", spec.get("scope"), before.get("scope"))
        found += immutable("spec.names.kind", names_now.get("kind"), names_before.get("kind"))
    return found + list(_names("status.acceptedNames", (new.get("status") or {}).get("acceptedNames") or {}))


def validate_definition_status(new: Obj, old: Obj) -> list[FieldError]:
    """Validate the names that a definition's status says it has."""
    return list(_names("status.acceptedNames", (new.get("status") or {}).get("acceptedNames") or {}))


def _preserves_unknown(spec: Obj) -> list[FieldError]:
    if not spec.get("preserveUnknownFields"):
        return []
    why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
    found = [invalid("spec.preserveUnknownFields", True, why)]
    if any(has_default(schema or {}) for schema in schemas_of({"spec": spec}).values()):
        why = "must be false in order to use defaults in the schema"
        found.append(invalid("spec.preserveUnknownFields", True, why))
    return found


def _stored_versions(definition: Obj) -> Iterator[FieldError]:
    """Versions in which objects lie in the store: all of them are known, the one that is written is among them."""
    stored = (definition.get("status") or {}).get("storedVersions") or []
    versions = (definition.get("spec") or {}).get("versions") or ()
    if not stored:
        yield invalid("status.storedVersions", stored, "must have at least one stored version")
        return
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            why = f"must have the storage version {version.get('name')}"
            yield invalid("status.storedVersions", stored, why)
    known = [version.get("name") for version in versions]
    for index, version in enumerate(stored):
        if version not in known and version not in stored[index + 1 :]:
            why = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and removes "
                f"{version} from status.storedVersions"
            )
            yield invalid(f"status.storedVersions[{index}]", version, why)


def _spec(spec: Obj, stored: Mapping[str, Obj | None] = _NONE, before: Obj | None = None) -> Iterator[FieldError]:
    """`stored`: the schemas that lie in the store, which are not judged again as long as they stay."""
    group = spec.get("group") or ""
    if not group:
        yield required("spec.group")
    elif problems := names.is_dns1123_subdomain(group):
        yield invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope") or ""
    if not scope:
        yield required("spec.scope")
    elif scope not in _SCOPES:
        yield not_supported("spec.scope", scope, _SCOPES)
    versions = spec.get("versions") or []
    yield from _versions(versions, stored, before)
    if versions and versions[0].get("name") and (problems := names.is_dns1035_label(versions[0]["name"])):
        yield invalid("spec.version", versions[0]["name"], ",".join(problems))
    given = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not given.get(name):
            yield required(f"spec.names.{name}")
    yield from _names("spec.names", given)
    if spec.get("conversion") is not None:
        yield from _conversion(spec["conversion"], (before or {}).get("conversion"))


def _versions(versions: Sequence[Obj], stored: Mapping[str, Obj | None], before: Obj | None) -> Iterator[FieldError]:
    """What all versions say alike is said once, for the whole definition."""
    shared = {member for member in _SHARED if is_shared(versions, member)}
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if problems := names.is_dns1035_label(name):
            yield invalid(f"{path}.name", name, ",".join(problems))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema")
        elif schema != stored.get(name) and ("schema" not in shared or not index):
            has_status = _has_status(versions if "schema" in shared else [version])
            yield from check_schema(schema, schema_path(versions, index), has_status=has_status)
        yield from _deprecation(version, path)
        for member, check in _SHARED.items():
            if member == "schema" or (member in shared and index):
                continue
            yield from check(version, "spec" if member in shared else path)
        place, has_schema = ("spec", True) if "selectableFields" in shared else (path, "schema" not in shared)
        if "selectableFields" not in shared or not index:
            keeps = _keeps_too_many(version, before)
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            if has_schema and version.get("selectableFields") and (why := why_not_structural(schema)):
                yield invalid(f"{path}.schema.openAPIV3Schema", "", why)
            yield from _selectable(version, f"{place}.selectableFields", has_schema=has_schema, too_many_before=keeps)
    if len({version.get("name") for version in versions}) < len(versions):
        yield invalid("spec.versions", versions, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")


def _has_status(versions: Sequence[Obj]) -> bool:
    return any((version.get("subresources") or {}).get("status") is not None for version in versions)


def _keeps_too_many(version: Obj, before: Obj | None) -> bool:
    return any(
        old.get("name") == version.get("name") and same(old.get("selectableFields"), version.get("selectableFields"))
        for old in (before or {}).get("versions") or ()
    )


def _deprecation(version: Obj, path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    for problem in _warning_problems(warning) if version.get("deprecated") else [_NOT_DEPRECATED]:
        yield invalid(f"{path}.deprecationWarning", warning, problem)


_NOT_DEPRECATED = "can only be set for deprecated versions"


def _warning_problems(warning: str) -> Iterator[str]:
    """A warning goes into a header, where only what can be shown has a place."""
    if len(warning.encode("utf-8", "replace")) > 256:
        yield "must be <= 256 characters long"
    if not warning:
        yield "must not be an empty string"
    for index, char in enumerate(warning):
        if not char.isprintable():
            place = len(warning[:index].encode("utf-8", "replace"))
            yield f"must only contain printable UTF-8 characters; non-printable character found at index {place}"
            break


def _names(path: str, given: Obj) -> Iterator[FieldError]:
    for name in ("plural", "singular"):
        if given.get(name) and (problems := names.is_dns1035_label(given[name])):
            yield invalid(f"{path}.{name}", given[name], ",".join(problems))
    for name in ("kind", "listKind"):
        if given.get(name) and (problems := names.is_dns1035_label(given[name].lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid(f"{path}.{name}", given[name], why)
    yield from _labels(f"{path}.shortNames", given.get("shortNames") or ())
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        yield invalid(f"{path}.listKind", given["listKind"], "kind and listKind may not be the same")
    yield from _labels(f"{path}.categories", given.get("categories") or ())


def _labels(path: str, given: Sequence[str]) -> Iterator[FieldError]:
    for index, label in enumerate(given):
        if problems := names.is_dns1035_label(label):
            yield invalid(f"{path}[{index}]", label, ",".join(problems))


def _conversion(conversion: Obj, before: Obj | None) -> Iterator[FieldError]:
    """Who converts objects between versions: nobody but their apiVersion, or a webhook."""
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook") or {}
    path, versions = "spec.conversion.webhookClientConfig", webhook.get("conversionReviewVersions") or []
    config = webhook.get("clientConfig")
    if not strategy:
        yield required("spec.conversion.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        if config is None:
            yield required(path, "required when strategy is set to Webhook")
        else:
            yield from client_config_errors(path, config)
        known = ((before or {}).get("webhook") or {}).get("conversionReviewVersions") or []
        knows = not known or any(version in REVIEW_VERSIONS for version in known)
        yield from review_versions("spec.conversion.conversionReviewVersions", versions, needs_known=knows)
        return
    why = "should not be set when strategy is not set to Webhook"
    if config is not None:
        yield forbidden(path, why)
    if versions:
        yield forbidden("spec.conversion.conversionReviewVersions", why)


def _subresources(version: Obj, path: str) -> Iterator[FieldError]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return
    place = f"{path}.subresources.scale"
    for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        given = scale.get(name) or ""
        if not given:
            yield required(f"{place}.{name}")
        elif not given.startswith("."):
            yield invalid(f"{place}.{name}", given, "must be a simple json path starting with .")
        elif not given.startswith(f"{root}."):
            yield invalid(f"{place}.{name}", given, f"should be a json path under {root}")
    given = scale.get("labelSelectorPath")
    if given and not given.startswith("."):
        yield invalid(f"{place}.labelSelectorPath", given, "must be a simple json path starting with .")
    elif given and not given.startswith((".spec.", ".status.")):
        yield invalid(f"{place}.labelSelectorPath", given, "should be a json path under either .spec or .status")


def _columns(version: Obj, path: str) -> Iterator[FieldError]:
    for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _column(column, f"{path}.additionalPrinterColumns[{number}]")


def _column(column: Obj, path: str) -> Iterator[FieldError]:
    listed = ",".join(_COLUMN_TYPES)
    if not column.get("name"):
        yield required(f"{path}.name")
    if not column.get("type"):
        yield required(f"{path}.type", f"must be one of {listed}")
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], f"must be one of {listed}")
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    where = column.get("jsonPath")
    if not where:
        yield required(f"{path}.JSONPath")
    elif not where.startswith("."):
        yield invalid(f"{path}.JSONPath", where, "must be a simple json path starting with .")


def _selectable(version: Obj, path: str, *, has_schema: bool, too_many_before: bool) -> Iterator[FieldError]:
    chosen = version.get("selectableFields") or ()
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if chosen and (not has_schema or schema is None):
        yield invalid(path, "", "may only be set when `version.schema.openAPIV3Schema` is not included")
        return
    seen: set[str] = set()
    for index, item in enumerate(chosen):
        where, given = f"{path}[{index}].jsonPath", item.get("jsonPath") or ""
        if not given:
            yield required(where)
            continue
        try:
            names_, found = field_at(given, schema or {})
        except ValueError as problem:
            yield invalid(where, given, f"is an invalid path: {problem}")
            continue
        if names_[0] == "metadata":
            yield invalid(where, given, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield invalid(where, given, why)
        if ".".join(names_) in seen:
            yield duplicate(where, given)
        seen.add(".".join(names_))
    if len(seen) > _MAX_SELECTABLE and not too_many_before:
        yield too_many(path, len(seen), _MAX_SELECTABLE)


_SHARED: Mapping[str, Callable[[Obj, str], Iterator[FieldError]]] = {
    "schema": lambda version, path: iter(()),
    "subresources": _subresources,
    "additionalPrinterColumns": _columns,
    "selectableFields": lambda version, path: iter(()),
}
"""What versions have in common is judged once; schemas and fields that select are more than one member each."""


def _approval(definition: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Groups of the Kubernetes community are protected: a definition says where it was agreed upon."""
    found, before = approval_of(definition), approval_of(old) if old is not None else None
    if found is None or (before is not None and before.reason == found.reason):
        return
    place = f"metadata.annotations[{ANNOTATION}]"
    if found.reason == MISSING:
        yield required(place, found.message)
    elif found.reason == INVALID:
        yield invalid(place, definition["metadata"]["annotations"][ANNOTATION], found.message)
