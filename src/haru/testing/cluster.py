"""What a test may do with the cluster that runs beside it, wherever that runs: an API that is not asynchronous.

Real clients use `kubeconfig`; the helpers here need none. Everything goes through the API server, as with any cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from haru.kube.meta import Obj, has_condition
from haru.testing.waiting import WaitTimeoutError, told, wait_until

T = TypeVar("T")
Objects = list[Obj]

CALL_SECONDS = 60.0


class Cluster(ABC):
    """A cluster in a directory. `start` returns when it is ready, `stop` when it is gone; also a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # --- life

    @abstractmethod
    def start(self) -> Self:
        """Bring it up. Raises what `haru up` would say: OptionError, OSError."""

    @abstractmethod
    def stop(self) -> None:
        """Take it down."""

    def __enter__(self) -> Self:
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
    @abstractmethod
    def url(self) -> str:
        """The address of the API server."""

    # --- objects

    def apply(self, *objects: Obj | str, namespace: str = "default") -> Objects:
        """Server-side apply of objects, or of YAML texts with any number of them; as they are afterwards."""
        found = [obj for given in objects for obj in _documents(given)]
        return [self._ask("apply", obj, namespace) for obj in found]

    def get(self, kind: str, name: str, namespace: str = "default") -> Obj | None:
        """An object by its kind (`Pod`, `apps/v1/Deployment`, `pods`, `po`); None if there is none."""
        found: Obj | None = self._ask("get", kind, name, namespace)
        return found

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> Objects:
        """The objects of a kind, everywhere or in a namespace, chosen by selectors."""
        found: Objects = self._ask("list", kind, namespace, labels, fields)
        return found

    def patch(self, kind: str, name: str, patch: Obj, namespace: str = "default", *, subresource: str = "") -> Obj:
        """A merge patch; the object afterwards."""
        patched: Obj = self._ask("patch", kind, name, patch, namespace, subresource)
        return patched

    def delete(self, kind: str, name: str, namespace: str = "default", *, wait: float = 0.0) -> None:
        """Delete an object; with `wait`, until it is gone, for as many seconds at most."""
        self._ask("delete", kind, name, namespace)
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

    # --- time

    @property
    def now(self) -> datetime:
        """The time of day in the cluster: that of the machine, and what has been made to pass."""
        time: datetime = self._ask("now")
        return time

    def advance(self, seconds: float, *, settle: float = 0.05, timeout: float = 60.0) -> datetime:
        """Make time pass for everything in the cluster, without waiting for it; the time of day afterwards.

        All that is due by then happens, in its order: pods end, leases are renewed, schedules come round, limits run
        out. Clients outside keep the time of the machine. While some are connected, no time passes in the `settle`
        seconds after a change or a request, so that an operator can respond to what it sees; give one that thinks for
        longer more. Raises WaitTimeoutError when all this takes longer than `timeout` seconds of the machine's clock.
        """
        if seconds < 0:
            raise ValueError(f"seconds: Invalid value: {seconds:g}: time does not go back")
        time: datetime = self._ask("advance", seconds, settle, timeout, within=timeout + CALL_SECONDS)
        return time

    # --- inside

    @abstractmethod
    def _ask(self, name: str, *arguments: Any, within: float = CALL_SECONDS) -> Any:
        """What a method of `haru.testing.inside.Inside` answers, or raises, within so many seconds."""


def _documents(given: Obj | str) -> list[Obj]:
    from haru.kube import yaml

    if not isinstance(given, str):
        return [given]
    return [document for document in yaml.load_all(given) if document]
