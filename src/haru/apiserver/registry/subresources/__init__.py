"""What is served below an object: one table from name and verb to the handler."""

from __future__ import annotations

from haru.apiserver.registry.subresources import binding, eviction, pods, scale, special, token
from haru.apiserver.registry.verbs import Handler, handle_get, handle_patch, handle_update

_OBJECT: dict[str, Handler] = {"get": handle_get, "update": handle_update, "patch": handle_patch}

SUBRESOURCES: dict[str, dict[str, Handler]] = {
    "approval": {"get": handle_get, "update": special.update_approval, "patch": special.patch_approval},
    "binding": {"create": binding.bind},
    "ephemeralcontainers": {
        "get": handle_get,
        "update": pods.update_ephemeral_containers,
        "patch": pods.patch_ephemeral_containers,
    },
    "eviction": {"create": eviction.evict},
    "finalize": {"update": special.finalize},
    "log": {"get": pods.read_log},
    "resize": {"get": handle_get, "update": pods.update_resources, "patch": pods.patch_resources},
    "scale": {"get": scale.read, "update": scale.update, "patch": scale.patch},
    "status": _OBJECT,
    "token": {"create": token.issue_token},
}
