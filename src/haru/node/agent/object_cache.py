"""Config maps, secrets and tokens of the pods here: each object is watched by its name, while a pod speaks of it.

A node may read what its pods refer to and nothing else, so there is one watch for each object. Source: the kubelet's
watching managers, as behaviour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from haru.client.api import ApiClient
from haru.client.informer import Informer, Selection
from haru.client.pod_tokens import PodTokens
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError
from haru.kube.pod_environment.volume_files import Token, references

CONFIG_MAPS = known_kind("v1", "ConfigMap")
SECRETS = known_kind("v1", "Secret")
ObjectKey = tuple[Kind, str, str]
"""Kind, namespace, name."""
_FIRST_SECONDS = 10.0


@dataclass(slots=True)
class _Watched:
    informer: Informer
    task: asyncio.Task[None]
    users: set[str] = field(default_factory=set)


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
        self._tokens = PodTokens(now)

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
        self._tokens.forget(uid)

    async def tokens(self, pod: Obj) -> Token:
        """Tokens for the pod's projections, made or renewed as need be. Raises StatusError, OSError for a first one."""
        return await self._tokens.of(self._client, pod)

    async def close(self) -> None:
        """Watch nothing more."""
        tasks = [entry.task for entry in self._watched.values()]
        self._watched.clear()
        self._of_pod.clear()
        await cancelled(*tasks)
