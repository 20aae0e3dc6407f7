"""Write objects in the server's own name, with admission, as kube-apiserver's loopback client does."""

from __future__ import annotations

import orjson

from haru.apiserver.auth.user import UserInfo
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.delete import Options, delete_one
from haru.apiserver.registry.patch import apply
from haru.apiserver.registry.write import Change, Outcome, change, create
from haru.apiserver.request.call import BuiltInAdmission, Call
from haru.apiserver.request.http import Message, Request
from haru.kube.errors import StatusError
from haru.kube.meta import Obj

_SELF = UserInfo("system:apiserver", ("system:masters",))


class Loopback:
    """Create and change objects as `system:apiserver`; no webhook or policy is asked."""

    def __init__(self, objects: ObjectStore, admission: BuiltInAdmission) -> None:
        self.objects, self.admission = objects, admission

    def call(self, obj: Obj, verb: str, *, named: bool = True, query: bytes = b"") -> Call:
        """Return a call for the resource of an object; `named`: for the object itself."""
        resource = self.objects.served.of_kind(obj["apiVersion"], obj["kind"])
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": query}
        request = Request(scope, _receive_nothing, _send_nowhere)
        request.user = _SELF
        metadata = obj["metadata"]
        call = Call(self.objects, self.admission, request, resource, metadata.get("namespace", ""), verb=verb)
        call.name = metadata["name"] if named else ""
        call.now, call.manager = self.objects.now(), "kube-apiserver"
        return call

    async def ensure(self, obj: Obj, manager: str = "kube-apiserver") -> bool:
        """Create an object unless it exists, in the name of a field manager; False if it exists."""
        resource, metadata = self.objects.served.of_kind(obj["apiVersion"], obj["kind"]), obj["metadata"]
        if await self.objects.record(resource, metadata.get("namespace", ""), metadata["name"]) is not None:
            return False
        call = self.call(obj, "create", named=False)
        call.manager = manager
        try:
            await create(call, orjson.loads(orjson.dumps(obj)))
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def update(self, obj: Obj, make: Change, subresource: str = "", manager: str = "kube-apiserver") -> Outcome:
        """Replace the stored object of this kind and name by what `make` returns for it."""
        call = self.call(obj, "update")
        call.subresource, call.manager = subresource, manager
        return await change(call, make)

    async def delete(self, obj: Obj) -> None:
        """Delete the object of this kind and name."""
        await delete_one(self.call(obj, "delete"), Options())

    async def apply(self, configuration: Obj, manager: str, subresource: str) -> Outcome:
        """Apply a configuration by force, in the name of a field manager."""
        call = self.call(configuration, "patch", query=b"force=true")
        call.subresource, call.manager = subresource, manager
        return await apply(call, configuration)


async def _receive_nothing() -> Message:
    return {"type": "http.request", "body": b""}


async def _send_nowhere(message: Message) -> None:
    return None
