"""The parameters of policies: the objects that a binding names or selects.

Source: KEP 3488 (paramKind, paramRef), as behaviour.
"""

from __future__ import annotations

from haru.apiserver.apiextensions.reader import in_version
from haru.apiserver.encoding.objects import shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.resources import Resource
from haru.kube.json_form import served
from haru.kube.meta import Obj
from haru.kube.selectors import label_selector_from


class ParamError(Exception):
    """A binding's parameters can not be had; `failurePolicy` decides what follows."""


def param_resource(objects: ObjectStore, kind: Obj) -> Resource | None:
    """The resource of a policy's `paramKind`; None where it is not served."""
    found = objects.served.find_kind(str(kind.get("apiVersion")), str(kind.get("kind")))
    return None if found is None or found.kind.virtual else found


def unknown_kind(kind: Obj) -> str:
    """What is said of a policy whose parameters are of a kind that is not served."""
    version = kind.get("apiVersion") or ""
    shown = version if "/" in version else f"/{version}"
    return f"failed to find resource referenced by paramKind: '{shown}, Kind={kind.get('kind')}'"


async def collect(objects: ObjectStore, resource: Resource, reference: Obj, namespace: str) -> list[Obj]:
    """The parameters of a binding for a request in a namespace, in the order of their names. Raises ParamError."""
    where = ""
    if resource.kind.namespaced:
        where = reference.get("namespace") or namespace
        if not where:
            raise ParamError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    elif reference.get("namespace"):
        raise ParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    if reference.get("name"):
        record = await objects.record(resource, where, reference["name"])
        records = [record] if record is not None else []
    else:
        selector = label_selector_from(reference.get("selector") or {})
        page = await objects.store.range(resource.prefix(where))
        records = [each for each in page.records if selector.matches(shared(each)["metadata"].get("labels") or {})]
    if not records and reference.get("parameterNotFoundAction") == "Deny":
        raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [served(shared(record), resource.kind) for record in await in_version(records, resource)]
