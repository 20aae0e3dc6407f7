"""Find the handler of a request: by path and method, with the verb that the authorizer is asked about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from haru.apiserver.auth.authentication import Authenticator
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.encoding.list_cache import ListCache
from haru.apiserver.proxy.kubelets.client import Kubelets
from haru.apiserver.registry.list import handle_list
from haru.apiserver.registry.object_metadata import keep_server_metadata
from haru.apiserver.registry.resources import Target
from haru.apiserver.registry.reviews import review_handlers
from haru.apiserver.registry.subresources import binding, eviction, pods, scale, token
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.registry.verbs import (
    delete,
    delete_collection,
    handle_create,
    handle_get,
    handle_patch,
    handle_update,
    patch_with,
    update_with,
)
from haru.apiserver.registry.watch import WatchHandler
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import PageNotFound, StatusError, method_not_allowed_error, no_such_path
from haru.kube.meta import Obj
from haru.kube.signing_requests import with_condition_times
from haru.kube.validation.core import validate_finalized_namespace
from haru.kube.validation.metadata import validate_metadata_again, validate_metadata_update
from haru.kube.validation.signing_requests import validate_signing_request_approval


async def finalize(call: Call) -> Response:
    """PUT: the metadata and `spec.finalizers` of a namespace; once these are gone from a deleted one, so is it."""
    return await update_with(call, _finalized)


async def _finalized(call: Call, wanted: Obj, live: Obj) -> Obj:
    metadata = keep_server_metadata(call, wanted, live)
    finalizers = (wanted.get("spec") or {}).get("finalizers") or []
    new = {**live, "metadata": metadata, "spec": {"finalizers": finalizers} if finalizers else {}}
    new = apply_defaults(new, call.resource.kind, call.objects.gates)
    metadata = new["metadata"]
    errors = validate_metadata_update(metadata, live["metadata"]) + validate_metadata_again(
        metadata, call.resource.kind
    )
    if errors := errors + validate_finalized_namespace(new):
        raise call.invalid(call.name, errors)
    return new


async def update_approval(call: Call) -> Response:
    """PUT of the approval of a signing request."""
    return await update_with(call, _approved)


async def patch_approval(call: Call) -> Response:
    """PATCH of the approval of a signing request."""
    return await patch_with(call, _approved)


async def _approved(call: Call, wanted: Obj, live: Obj) -> Obj:
    """Metadata and conditions; what is set without times gets the present one."""
    await call.admission.validate_subresource(call, wanted, live)
    timed = with_condition_times(wanted, live, call.now)
    status = {**(live.get("status") or {}), "conditions": (timed.get("status") or {}).get("conditions") or []}
    new = {**live, "metadata": keep_server_metadata(call, wanted, live), "status": status}
    errors = validate_metadata_update(new["metadata"], live["metadata"])
    errors += validate_signing_request_approval(new, live)
    if errors:
        raise call.invalid(call.name, errors)
    return new


Handler = Callable[[Call], Awaitable[Response]]
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Handlers:
    """The handlers of one server's resources; each is bound to what it needs beyond its call."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        kubelets: Kubelets | None,
        simulated: SimulatedPods,
        streams: OpenStreams,
    ) -> None:
        self.lists = ListCache()
        self._verbs: Mapping[str, Handler] = {
            "get": handle_get,
            "list": partial(handle_list, self.lists),
            "watch": WatchHandler(streams).handle,
            "create": handle_create,
            "update": handle_update,
            "patch": handle_patch,
            "delete": delete,
            "deletecollection": delete_collection,
        }
        self._reviews = review_handlers(authenticator, authorizer)
        self._subresources = _subresource_handlers(authenticator, kubelets, simulated, streams)

    def find(self, target: Target, request: Request) -> tuple[str, Handler]:
        """Return the verb and the handler of a request; 405 when its method is not served there."""
        resource = target.resource
        verb = "watch" if target.watch else verb_of(request, bool(target.name))
        if target.watch and request.method != "GET":
            raise method_not_allowed()
        if target.subresource:
            if verb in resource.subresource_verbs[target.subresource]:
                return verb, self._subresources[target.subresource][verb]
        elif resource.kind.virtual and target.name:
            raise no_such_path()
        elif verb in resource.kind.verbs and _has_path(target, verb):
            if resource.kind.virtual:
                return verb, self._reviews[resource.kind.plural]
            return verb, self._verbs[verb]
        elif resource.kind.custom is not None and resource.kind.namespaced and not target.namespace:
            raise PageNotFound
        raise method_not_allowed()


def _subresource_handlers(
    authenticator: Authenticator, kubelets: Kubelets | None, simulated: SimulatedPods, streams: OpenStreams
) -> Mapping[str, Mapping[str, Handler]]:
    return {
        "approval": {"get": handle_get, "update": update_approval, "patch": patch_approval},
        "binding": {"create": binding.bind},
        "ephemeralcontainers": {
            "get": handle_get,
            "update": pods.update_ephemeral_containers,
            "patch": pods.patch_ephemeral_containers,
        },
        "eviction": {"create": eviction.evict},
        "finalize": {"update": finalize},
        "log": {"get": partial(pods.read_log, kubelets, simulated, streams)},
        "resize": {"get": handle_get, "update": pods.update_resources, "patch": pods.patch_resources},
        "scale": {"get": scale.read, "update": scale.update, "patch": scale.patch},
        "status": {"get": handle_get, "update": handle_update, "patch": handle_patch},
        "token": {"create": partial(token.issue_token, authenticator.account_tokens)},
    }


def verb_of(request: Request, named: bool) -> str:
    """Return the API verb of a request for a collection or, `named`, for an object; 405 for other methods."""
    method = request.method
    if method == "GET":
        if named:
            return "get"
        return "watch" if request.query and request.flag("watch") else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    verb = _VERBS.get(method)
    if verb is None:
        raise method_not_allowed()
    return verb


def _has_path(target: Target, verb: str) -> bool:
    """Whether 1.36 has a path like this for the verb: writes name an object or the namespace of the new one."""
    if verb in ("list", "watch", "get"):
        return True
    if not target.namespace and target.resource.kind.namespaced:
        return False
    return bool(target.name) is (verb not in ("create", "deletecollection"))


def method_not_allowed() -> StatusError:
    """405 for a method that a resource does not serve."""
    return method_not_allowed_error("the server does not allow this method on the requested resource")
