"""Config maps, secrets and tokens of the pods here: each object is watched by its name, while a pod speaks of it.

A node may read what its pods refer to and nothing else, so there is one watch for each object. Source: the kubelet's
watching managers and its token manager (renewed after 80 % of a token's life or 24 hours), as behaviour.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.volume_files import references, token_requests

_log = logging.getLogger(__name__)
CONFIG_MAPS = known_kind("v1", "ConfigMap")
SECRETS = known_kind("v1", "Secret")
ACCOUNTS = known_kind("v1", "ServiceAccount")
ObjectKey = tuple[Kind, str, str]
"""Kind, namespace, name."""
_FIRST_SECONDS = 10.0
_RENEW_AGAIN_SECONDS = 60.0
_LONGEST_TOKEN_AGE = 24 * 3600.0


@dataclass(slots=True)
class _Watched:
    informer: Informer
    task: asyncio.Task[None]
    users: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float


class Objects:
    """What pods refer to; `changed(uid)` is called when something of a pod's has changed."""

    def __init__(
        self, client: ApiClient, changed: Callable[[str], None], now: Callable[[], datetime] = utc_now
    ) -> None:
        self._client = client
        self._changed = changed
        self._now = now
        self._watched: dict[ObjectKey, _Watched] = {}
        self._of_pod: dict[str, set[ObjectKey]] = {}
        self._tokens: dict[str, dict[str, _Token]] = {}

    async def want(self, pod: Obj) -> ReferencedObjects:
        """Have everything that a pod refers to here; it is watched until `forget`. Raises `ConfigError`."""
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        config_maps, secrets = references(pod)
        keys = {(CONFIG_MAPS, namespace, name) for name in config_maps}
        keys |= {(SECRETS, namespace, name) for name in secrets}
        entries = [self._watch(*key) for key in keys]
        for entry in entries:
            entry.users.add(uid)
        before, self._of_pod[uid] = self._of_pod.get(uid, set()), keys
        for key in before - keys:
            self._leave(key, uid)
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                for entry in entries:
                    await entry.informer.wait_synced()
        except TimeoutError:
            late = [k for k in keys if not self._watched[k].informer.has_synced]
            text = ", ".join(f"{kind.plural}/{name}" for kind, _, name in late)
            raise ConfigError(f"failed to sync {text} cache: timed out waiting for the condition") from None
        return ReferencedObjects(
            lambda name: self._get(CONFIG_MAPS, namespace, name), lambda name: self._get(SECRETS, namespace, name)
        )

    def _get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        entry = self._watched.get((kind, namespace, name))
        return entry.informer.get(name, namespace) if entry is not None else None

    def _watch(self, kind: Kind, namespace: str, name: str) -> _Watched:
        key = (kind, namespace, name)
        if key not in self._watched:
            informer = Informer(self._client, kind, Selection(namespace, field_selector=f"metadata.name={name}"))
            task = asyncio.create_task(informer.run(), name=f"watch {kind.plural}/{name}")
            entry = self._watched[key] = _Watched(informer, task)

            def tell(*_: Obj) -> None:
                for uid in list(entry.users):
                    self._changed(uid)

            informer.add_handler(tell, tell, tell)
        return self._watched[key]

    def _leave(self, key: ObjectKey, uid: str) -> None:
        entry = self._watched[key]
        entry.users.discard(uid)
        if not entry.users:
            entry.task.cancel()
            del self._watched[key]

    def forget(self, uid: str) -> None:
        """Drop a deleted pod."""
        for key in self._of_pod.pop(uid, ()):
            self._leave(key, uid)
        self._tokens.pop(uid, None)

    async def tokens(self, pod: Obj) -> Callable[[Mapping[str, Any]], str]:
        """Tokens for the pod's projections, made or renewed as need be. Raises StatusError, OSError for a first one."""
        uid = pod["metadata"]["uid"]
        kept = self._tokens.setdefault(uid, {})
        for request in token_requests(pod):
            key, now = _key(request), self._now().timestamp()
            if key in kept and now < kept[key].renew_at:
                continue
            try:
                kept[key] = await self._token(pod, request)
            except (OSError, StatusError) as error:
                if key not in kept:
                    raise
                _log.warning("a token of pod %s was not renewed: %s", uid, error)
                kept[key] = _Token(kept[key].text, now + _RENEW_AGAIN_SECONDS)
        return lambda request: kept[_key(request)].text

    async def _token(self, pod: Obj, request: Mapping[str, Any]) -> _Token:
        meta, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        audience = request.get("audience")
        spec: Obj = {
            "audiences": [audience] if audience else [],
            "expirationSeconds": request.get("expirationSeconds") or 3600,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        began = self._now().timestamp()
        answer = await self._client.create_subresource(ACCOUNTS, account, "token", body, meta["namespace"])
        status = answer["status"]
        life = parse_time(status["expirationTimestamp"]).timestamp() - began
        return _Token(status["token"], began + min(0.8 * life, _LONGEST_TOKEN_AGE))

    async def close(self) -> None:
        """Watch nothing more."""
        tasks = [entry.task for entry in self._watched.values()]
        self._watched.clear()
        self._of_pod.clear()
        await cancelled(*tasks)


def _key(request: Mapping[str, Any]) -> str:
    return json.dumps([request.get("audience"), request.get("expirationSeconds")])
