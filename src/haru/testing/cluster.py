"""One cluster that runs beside a test: in a thread of this process, with an API for tests that are not asynchronous.

Real clients use `kubeconfig`; the helpers here need none. Everything goes through the API server, as with any cluster.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from haru.kube.meta import has_condition
from haru.testing.waiting import Obj, WaitTimeoutError, told, wait_until

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.embedded.cluster import EmbeddedCluster
    from haru.embedded.options import UpOptions
    from haru.kube.kinds import Kind

T = TypeVar("T")
Objects = list[Obj]

START_SECONDS = 60.0
CALL_SECONDS = 60.0


class LocalCluster:
    """A cluster in a directory. `start` returns when it is ready, `stop` when it is gone; also a context manager."""

    def __init__(self, directory: Path, options: UpOptions) -> None:
        self.directory = directory
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="haru", daemon=True)
        self._embedded: EmbeddedCluster | None = None
        self._client: ApiClient | None = None
        self._kinds: dict[tuple[str, str], Kind] = {}

    # --- life

    def start(self) -> LocalCluster:
        """Bring it up. Raises what `haru up` would say: OptionError, OSError."""
        self._thread.start()
        try:
            self._run(self._start(), START_SECONDS)
        except BaseException:
            self.stop()
            raise
        return self

    async def _start(self) -> None:
        from haru.embedded.cluster import EmbeddedCluster
        from haru.embedded.identity import ADMIN

        embedded = EmbeddedCluster(self._options, self.directory)
        self._embedded = embedded
        await embedded.start()
        self._client = embedded.client(ADMIN)

    def stop(self) -> None:
        """Take it down."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._stop(), CALL_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _stop(self) -> None:
        if self._embedded is not None:
            await self._embedded.stop()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- where it is

    @property
    def kubeconfig(self) -> Path:
        """The file for kubectl and any client library, as administrator."""
        return self.directory / "kubeconfig"

    @property
    def url(self) -> str:
        """The address of the API server."""
        assert self._embedded is not None, "the cluster is not started"
        return self._embedded.address

    # --- objects

    def apply(self, *objects: Obj | str, namespace: str = "default") -> Objects:
        """Server-side apply of objects, or of YAML texts with any number of them; as they are afterwards."""
        found = [obj for given in objects for obj in _documents(given)]
        return [self._call(self._apply(obj, namespace)) for obj in found]

    def get(self, kind: str, name: str, namespace: str = "default") -> Obj | None:
        """An object by its kind (`Pod`, `apps/v1/Deployment`, `pods`, `po`); None if there is none."""
        return self._call(self._get(kind, name, namespace))

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Objects:
        """The objects of a kind, everywhere or in a namespace, chosen by selectors."""
        return self._call(self._list(kind, namespace, labels, fields))

    def patch(self, kind: str, name: str, patch: Obj, namespace: str = "default", *, subresource: str = "") -> Obj:
        """A merge patch; the object afterwards."""
        return self._call(self._patch(kind, name, patch, namespace, subresource))

    def delete(self, kind: str, name: str, namespace: str = "default", *, wait: float = 0.0) -> None:
        """Delete an object; with `wait`, until it is gone, for as many seconds at most."""
        self._call(self._delete(kind, name, namespace))
        if wait:
            wait_until(lambda: self.get(kind, name, namespace) is None, wait, f"{kind} {name} is gone")

    def events(self, name: str, namespace: str = "default") -> Sequence[str]:
        """What was reported about an object: `Reason: message`, the oldest first."""
        found = self.list("Event", namespace, fields=f"involvedObject.name={name}")
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    # --- waiting

    def wait(
        self,
        kind: str,
        name: str,
        condition: str = "Ready",
        namespace: str = "default",
        *,
        status: str = "True",
        timeout: float = 30.0,
    ) -> Obj:
        """The object once its condition has the status. Raises WaitTimeoutError with what it says instead."""
        return self.wait_for(
            kind,
            name,
            lambda obj: has_condition(obj, condition, status),
            namespace,
            timeout=timeout,
            what=f"{condition}={status}",
        )

    def wait_for(
        self,
        kind: str,
        name: str,
        holds: Callable[[Obj], Any],
        namespace: str = "default",
        *,
        timeout: float = 30.0,
        what: str = "what the test waits for",
    ) -> Obj:
        """The object once `holds` says so of it."""
        last: dict[str, Obj | None] = {}

        def check() -> Obj | None:
            obj = last["seen"] = self.get(kind, name, namespace)
            return obj if obj is not None and holds(obj) else None

        try:
            found = wait_until(check, timeout, what)
        except WaitTimeoutError:
            events = "; ".join(self.events(name, namespace)[-5:]) or "none"
            state = told(last.get("seen"))
            raise WaitTimeoutError(
                f"{kind} {namespace}/{name}: {what}: not within {timeout:g} s; it is: {state}; events: {events}"
            ) from None
        assert found is not None
        return found

    def wait_for_event(
        self, name: str, reason: str, namespace: str = "default", *, timeout: float = 30.0
    ) -> Sequence[str]:
        """The messages of the events of an object with this reason, once there is one, the oldest first.

        Events are written beside what they report of, so one may come after the state that it tells about.
        """

        def check() -> Sequence[str]:
            found = (event.partition(": ") for event in self.events(name, namespace))
            return [message for told_reason, _, message in found if told_reason == reason]

        try:
            return wait_until(check, timeout, reason)
        except WaitTimeoutError:
            others = "; ".join(self.events(name, namespace)[-5:]) or "none"
            raise WaitTimeoutError(
                f"{namespace}/{name}: no event {reason}: not within {timeout:g} s; events: {others}"
            ) from None

    def wait_until(self, holds: Callable[[], T], *, timeout: float = 30.0, what: str = "what the test waits for") -> T:
        """The first true answer of `holds`."""
        return wait_until(holds, timeout, what)

    # --- inside

    def _run(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._run(work, CALL_SECONDS)

    async def _kind(self, name: str) -> Kind:
        """The served kind that a name stands for, asked for again where it is not known yet."""
        from haru.client.discovery import served_kinds

        version, _, word = name.rpartition("/")
        for attempt in range(2):
            for kind in self._kinds.values():
                words = (kind.kind.lower(), kind.plural, kind.singular, *kind.short_names, kind.group_resource)
                if word.lower() in words and version in ("", kind.api_version):
                    return kind
            if not attempt:
                assert self._client is not None, "the cluster is not started"
                for kind in await served_kinds(self._client):
                    self._kinds.setdefault((kind.group, kind.kind), kind)
        raise LookupError(f"the cluster serves no {name!r}; write a kind, a plural, or group/version/Kind")

    async def _apply(self, obj: Obj, namespace: str) -> Obj:
        client = self._client
        assert client is not None, "the cluster is not started"
        kind = await self._kind(f"{obj.get('apiVersion', '')}/{obj.get('kind', '')}")
        metadata: Mapping[str, Any] = obj.get("metadata") or {}
        place = str(metadata.get("namespace") or namespace) if kind.namespaced else ""
        return await client.patch(
            kind, str(metadata["name"]), obj, place, type="apply", field_manager="haru.testing", force=True
        )

    async def _get(self, kind: str, name: str, namespace: str) -> Obj | None:
        from haru.kube.errors import StatusError

        found = await self._kind(kind)
        assert self._client is not None
        try:
            return await self._client.get(found, name, namespace if found.namespaced else "")
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    async def _list(self, kind: str, namespace: str, labels: str, fields: str) -> Objects:
        found = await self._kind(kind)
        assert self._client is not None
        answer = await self._client.list(
            found, namespace if found.namespaced else "", label_selector=labels, field_selector=fields
        )
        items: Objects = answer["items"]
        return items

    async def _patch(self, kind: str, name: str, patch: Obj, namespace: str, subresource: str) -> Obj:
        found = await self._kind(kind)
        assert self._client is not None
        return await self._client.patch(
            found, name, patch, namespace if found.namespaced else "", subresource=subresource
        )

    async def _delete(self, kind: str, name: str, namespace: str) -> None:
        found = await self._kind(kind)
        assert self._client is not None
        await self._client.delete(found, name, namespace if found.namespaced else "")


def _documents(given: Obj | str) -> list[Obj]:
    from haru.kube import yaml

    if not isinstance(given, str):
        return [given]
    return [document for document in yaml.load_all(given) if document]
