"""The REST verbs of a resource: one table, the same handlers for every kind."""

from __future__ import annotations

from haru.apiserver.apiextensions.reader import converted, in_version
from haru.apiserver.encoding.rendering import render_object
from haru.apiserver.registry.delete import handle_delete, handle_delete_collection
from haru.apiserver.registry.list import read_revision, revision_of, wait_for_revision
from haru.apiserver.registry.object_metadata import check_identity, place_in_namespace
from haru.apiserver.registry.patch import patch
from haru.apiserver.registry.write import Outcome, Prepare, change, create, create_absent
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Response
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.strategy import creates_on_update


async def handle_get(call: Call) -> Response:
    """GET of an object."""
    if call.request.query and (revision := _revision_of(call)):
        await wait_for_revision(call, revision)
    record = await call.objects.record(call.resource, call.namespace, call.name)
    if record is None:
        raise call.not_found()
    (shown,) = await in_version([record], call.resource)
    return render_object(call, shown)


def _revision_of(call: Call) -> int:
    """The version that is asked for; of an event 1.36 reads it later than of anything else."""
    return read_revision(call.request) if call.resource.kind.plural == "events" else revision_of(call.request)


async def handle_create(call: Call) -> Response:
    """POST to a collection."""
    read_write_options(call)
    obj = await bodies.read_object(call.request, call.resource.kind)
    return await respond(call, await create(call, obj))


async def handle_update(call: Call) -> Response:
    """PUT of an object."""
    return await update_with(call)


async def update_with(call: Call, prepare: Prepare | None = None) -> Response:
    """PUT of an object or of a part of it that has rules of its own."""
    read_write_options(call)
    obj = await bodies.read_object(call.request, call.resource.kind)
    obj.setdefault("metadata", {})
    check_identity(call, obj)
    place_in_namespace(call, obj["metadata"])

    async def make(live: Obj) -> Obj:
        return obj

    if (
        not call.subresource
        and creates_on_update(call.resource.kind)
        and await call.objects.record(call.resource, call.namespace, call.name) is None
    ):
        obj["metadata"].pop("resourceVersion", None)
        try:
            return await respond(call, await create_absent(call, obj))
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    return await respond(call, await change(call, make, prepare=prepare, retry=False))


async def handle_patch(call: Call) -> Response:
    """PATCH of an object."""
    return await patch_with(call)


async def patch_with(call: Call, prepare: Prepare | None = None) -> Response:
    """PATCH of an object or of a part of it that has rules of its own."""
    return await respond(call, await patch(call, prepare))


async def delete(call: Call) -> Response:
    """DELETE of an object."""
    read_write_options(call)
    return await handle_delete(call)


async def delete_collection(call: Call) -> Response:
    """DELETE of a collection."""
    read_write_options(call)
    return await handle_delete_collection(call)


async def respond(call: Call, outcome: Outcome) -> Response:
    """The written object as the client wants it."""
    status = 201 if outcome.created else 200
    obj, record = outcome.obj, outcome.record
    if obj is not None:
        obj = await converted(obj, call.resource.kind)
    if record is not None:
        (record,) = await in_version([record], call.resource)
    return render_object(call, record, obj, status)
