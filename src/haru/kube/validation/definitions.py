"""Rules for CustomResourceDefinitions.

Source: apiextensions.k8s.io/v1 validation, as behaviour; KEP 2332 (structural schemas).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from haru.kube import names
from haru.kube.custom.definitions import is_established, is_shared, schema_path, schemas_of
from haru.kube.custom.schema_checks import check_schema
from haru.kube.errors import OMITTED, FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import immutable
from haru.kube.validation.registrations import REVIEW_VERSIONS, client_config_errors

_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = (
    "binary", "byte", "date", "date-time", "double", "float", "int32", "int64", "password",
)  # fmt: skip
_PATH = re.compile(r"(\.[A-Za-z_][A-Za-z0-9_-]*|\['[^']+'\]|\[[0-9]+\])+")
_MAX_SELECTABLE = 8
_NONE: Mapping[str, Obj | None] = {}
_APPROVAL = "api-approved.kubernetes.io"
_KUBE_GROUPS = re.compile(r"(.*\.)?(k8s\.io|kubernetes\.io)")


def validate_definition(definition: Obj) -> list[FieldError]:
    """Validate a definition that is to be created."""
    spec = definition.get("spec") or {}
    found = list(_spec(spec)) + list(_approval(definition))
    name = (definition.get("metadata") or {}).get("name")
    wanted = f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}"
    if name != wanted:
        found.insert(0, invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if spec.get("preserveUnknownFields"):
        found.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    return found


def validate_definition_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate the replacement of a definition."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = list(_spec(spec, schemas_of(old))) + list(_approval(new))
    if spec.get("preserveUnknownFields") and not before.get("preserveUnknownFields"):
        found.append(invalid("spec.preserveUnknownFields", True, "must be false"))
    names_now, names_before = spec.get("names") or {}, before.get("names") or {}
    found += immutable("spec.group", spec.get("group"), before.get("group"))
    found += immutable("spec.names.plural", names_now.get("plural"), names_before.get("plural"))
    if is_established(old):
        found += immutable("spec.scope", spec.get("scope"), before.get("scope"))
        found += immutable("spec.names.kind", names_now.get("kind"), names_before.get("kind"))
    stored = (old.get("status") or {}).get("storedVersions") or []
    known = [version.get("name") for version in spec.get("versions") or ()]
    for index, version in enumerate(stored):
        if version not in known:
            why = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and removes "
                f"{version} from status.storedVersions"
            )
            found.append(invalid(f"status.storedVersions[{index}]", version, why))
    return found


def _spec(spec: Obj, stored: Mapping[str, Obj | None] = _NONE) -> Iterator[FieldError]:
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
    yield from _versions(spec.get("versions") or [], stored)
    given = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not given.get(name):
            yield required(f"spec.names.{name}")
    yield from _names(given)
    yield from _conversion(spec.get("conversion") or {})


def _versions(versions: Sequence[Obj], stored: Mapping[str, Obj | None]) -> Iterator[FieldError]:
    shared = is_shared(versions, "schema")
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        if problems := names.is_dns1035_label(name):
            yield invalid(f"{path}.name", name, ",".join(problems))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema")
        elif schema != stored.get(name) and (not shared or not index):
            yield from check_schema(schema, schema_path(versions, index))
        yield from _deprecation(version, path)
        yield from _subresources(version.get("subresources") or {}, f"{path}.subresources")
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column(column, f"{path}.additionalPrinterColumns[{number}]")
        yield from _selectable(version, schema or {}, f"{path}.selectableFields")
    if len({version.get("name") for version in versions}) < len(versions):
        yield invalid("spec.versions", OMITTED, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", OMITTED, "must have exactly one version marked as storage version")


def _deprecation(version: Obj, path: str) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    if not version.get("deprecated"):
        yield invalid(f"{path}.deprecationWarning", warning, "can only be set for deprecated versions")
    if len(warning) > 256:
        yield invalid(f"{path}.deprecationWarning", warning, "must be <= 256 characters long")
    if not warning:
        yield invalid(f"{path}.deprecationWarning", warning, "must not be an empty string")


def _names(given: Obj) -> Iterator[FieldError]:
    for name in ("plural", "singular"):
        if given.get(name) and (problems := names.is_dns1035_label(given[name])):
            yield invalid(f"spec.names.{name}", given[name], ",".join(problems))
    for name in ("kind", "listKind"):
        if given.get(name) and (problems := names.is_dns1035_label(given[name].lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid(f"spec.names.{name}", given[name], why)
    for name in ("shortNames", "categories"):
        for index, item in enumerate(given.get(name) or ()):
            if problems := names.is_dns1035_label(item):
                yield invalid(f"spec.names.{name}[{index}]", item, ",".join(problems))
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        yield invalid("spec.names.listKind", given["listKind"], "kind and listKind may not be the same")


def _conversion(conversion: Obj) -> Iterator[FieldError]:
    """Who converts objects between versions: nobody but their apiVersion, or a webhook."""
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook")
    path, versions = "spec.conversion.webhookClientConfig", (webhook or {}).get("conversionReviewVersions") or []
    if not strategy:
        yield required("spec.conversion.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        if not (webhook or {}).get("clientConfig"):
            yield required(path, "required when strategy is set to Webhook")
        else:
            yield from client_config_errors(path, (webhook or {})["clientConfig"])
        yield from _review_versions(versions)
        return
    why = "should not be set when strategy is not set to Webhook"
    if (webhook or {}).get("clientConfig"):
        yield forbidden(path, why)
    if versions:
        yield forbidden("spec.conversion.conversionReviewVersions", why)


def _review_versions(versions: Sequence[str]) -> Iterator[FieldError]:
    path = "spec.conversion.conversionReviewVersions"
    if not versions:
        yield required(path)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
        for problem in names.is_dns1035_label(version):
            yield invalid(f"{path}[{index}]", version, problem)
    if not any(version in REVIEW_VERSIONS for version in versions):
        yield invalid(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def _subresources(subresources: Obj, path: str) -> Iterator[FieldError]:
    scale = subresources.get("scale")
    if scale is None:
        return
    for name, root in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        given = scale.get(name) or ""
        if not given:
            yield required(f"{path}.scale.{name}")
        elif not _is_field_path(given) or not given.startswith(f"{root}."):
            yield invalid(f"{path}.scale.{name}", given, f"should be a json path under {root}")
    given = scale.get("labelSelectorPath")
    if given and not (_is_field_path(given) and given.startswith((".spec.", ".status."))):
        yield invalid(f"{path}.scale.labelSelectorPath", given, "should be a json path under either .spec or .status")


def _is_field_path(path: str) -> bool:
    return re.fullmatch(r"(\.[A-Za-z_][A-Za-z0-9_-]*)+", path) is not None


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
        yield required(f"{path}.jsonPath")
    elif not where.startswith((".", "[", "{")):
        yield invalid(f"{path}.jsonPath", where, "must be a simple json path starting with . or [")


def _selectable(version: Obj, schema: Obj, path: str) -> Iterator[FieldError]:
    chosen = version.get("selectableFields") or ()
    if len(chosen) > _MAX_SELECTABLE:
        yield too_many(path, len(chosen), _MAX_SELECTABLE)
    seen: set[str] = set()
    for index, item in enumerate(chosen):
        where, given = f"{path}[{index}].jsonPath", item.get("jsonPath") or ""
        if not given:
            yield required(where)
            continue
        found = _schema_at(schema, given) if _is_field_path(given) else None
        if given.startswith(".metadata"):
            yield invalid(where, given, "must not point to fields in metadata")
        elif found is None:
            yield invalid(where, given, "is an invalid path: does not refer to a valid field")
        elif found.get("type") not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield invalid(where, given, why)
        if given in seen:
            yield duplicate(where, given)
        seen.add(given)


def _schema_at(schema: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = schema
    for name in path.split(".")[1:]:
        found = ((found or {}).get("properties") or {}).get(name)
    return found


def _approval(definition: Obj) -> Iterator[FieldError]:
    """Groups of the Kubernetes community are protected: a definition says where it was agreed upon."""
    metadata, group = definition.get("metadata") or {}, (definition.get("spec") or {}).get("group") or ""
    if not _KUBE_GROUPS.fullmatch(group):
        return
    given = (metadata.get("annotations") or {}).get(_APPROVAL, "")
    if not given:
        why = (
            "protected groups must have approval annotation "
            '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
        )
        yield required(f"metadata.annotations[{_APPROVAL}]", why)
    elif not given.startswith(("https://", "http://", "unapproved")):
        why = (
            "protected groups must have approval annotation "
            '"api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield invalid(f"metadata.annotations[{_APPROVAL}]", given, why)
