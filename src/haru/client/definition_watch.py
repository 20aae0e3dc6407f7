"""Wakes whoever depends on which kinds are served: as a CustomResourceDefinition changes, and once a minute."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from haru.client.api import ApiClient
from haru.client.discovery import LOOK_SECONDS, may_list
from haru.client.informer import Informer
from haru.kube.kinds import known_kind

_DEFINITIONS = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


class DefinitionWatch:
    """Watches the definitions while `run` does, as far as they may be listed."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; return where they may not be listed."""
        with suppress(OSError):
            if await may_list(self._client, _DEFINITIONS):
                definitions, wake = Informer(self._client.metadata_only(), _DEFINITIONS), self._woken.set
                definitions.add_handler(lambda _: wake(), lambda _, __: wake(), lambda _: wake())
                await definitions.run()

    async def changed(self) -> None:
        """Wait for a change since the last call, for a minute at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._woken.wait()
        self._woken.clear()
