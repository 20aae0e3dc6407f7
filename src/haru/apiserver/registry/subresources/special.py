"""`/finalize` of namespaces and `/approval` of signing requests."""

from __future__ import annotations

from haru.apiserver.object_store import Obj
from haru.apiserver.registry.verbs import patch_with, update_with
from haru.apiserver.registry.write import keep_server_metadata
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Response


async def finalize(call: Call) -> Response:
    """PUT: the namespace's `spec.finalizers`; once they are gone from one that is being deleted, so is it."""
    return await update_with(call, _finalized)


async def _finalized(call: Call, wanted: Obj, live: Obj) -> Obj:
    metadata = keep_server_metadata(call, wanted, live)
    finalizers = (wanted.get("spec") or {}).get("finalizers") or []
    kept = [name for name in finalizers if name in ((live.get("spec") or {}).get("finalizers") or [])]
    return {**live, "metadata": {**live["metadata"], **_managed(metadata)}, "spec": {"finalizers": kept}}


def _managed(metadata: Obj) -> Obj:
    return {"managedFields": metadata["managedFields"]} if "managedFields" in metadata else {}


async def update_approval(call: Call) -> Response:
    """PUT of the approval of a signing request."""
    return await update_with(call, _approved)


async def patch_approval(call: Call) -> Response:
    """PATCH of the approval of a signing request."""
    return await patch_with(call, _approved)


async def _approved(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Conditions only; what is set without times gets the present one."""
    await call.admission.validate_subresource(call, wanted, live)
    conditions = []
    for condition in (wanted.get("status") or {}).get("conditions") or ():
        stamped = dict(condition)
        stamped.setdefault("status", "True")
        for name in ("lastUpdateTime", "lastTransitionTime"):
            stamped[name] = stamped.get(name) or call.now
        conditions.append(stamped)
    status = {**(live.get("status") or {}), "conditions": conditions}
    metadata = {**live["metadata"], **_managed(keep_server_metadata(call, wanted, live))}
    return {**live, "metadata": metadata, "status": status}
