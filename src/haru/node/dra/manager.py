"""Prepares the claims of pods on this node and gives them back: what the kubelet does between binding and running.

Every claim is checked with the API server before its driver is asked: allocated, reserved for the pod, meant for this
node. What is noted is on the disk before a driver acts; claims of one pod go to a driver in one call; nobody works on a
claim that somebody else works on. Source: kubelet `cm/dra`, as behaviour; KEP-4381.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Final, TypeVar

from haru.client.api import ApiClient
from haru.drivers.checkpoint import Checkpoint, CheckpointError
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, labels_of, name_of, namespace_of, uid_of
from haru.kube.pod_claims import NotPrepared, PodClaim, check_claim, pod_claims
from haru.kube.selectors import node_selector_matches
from haru.node.dra.claim_info_cache import ClaimInfo, ClaimInfos, PreparedDevice
from haru.node.dra.containers import cdi_ids
from haru.node.dra.devices import DevicesError, Prepared
from haru.node.dra.errors import ClaimRefused, DriverAway, DriverMissing
from haru.node.dra.metrics import DraMetrics
from haru.node.dra.plugins import Instance
from haru.node.dra.registry import PluginRegistry
from haru.proto import dra_pb2 as dra

NODES: Final = known_kind("v1", "Node")
CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
T = TypeVar("T")
CHECKPOINT: Final = "dra_manager_state"
ATTEMPTS: Final = 4
"""How often a driver is asked that cannot be reached; what it refuses is left to the pod's next attempt."""
_PAUSE_SECONDS: Final = 0.2


class DeviceManager:
    """Prepares and unprepares claims with the registered drivers, on the node `node_name`. `load` comes first.

    What it has to remember is in `directory`.
    """

    def __init__(
        self,
        client: ApiClient,
        registry: PluginRegistry,
        directory: Path,
        node_name: str,
        metrics: DraMetrics,
    ) -> None:
        self._client = client
        self._registry = registry
        self._checkpoint = Checkpoint(directory / CHECKPOINT, "prepared claims of a node")
        self._node_name = node_name
        self._metrics = metrics
        self._infos = ClaimInfos()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def load(self) -> None:
        """Read what was prepared before. Raises `CheckpointError`: nothing can be known without it."""
        content = self._checkpoint.load()
        try:
            self._infos = ClaimInfos(content)
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{self._checkpoint.path}: not as written here: {error!r}") from None
        self._count()

    def find(self, key: str) -> ClaimInfo | None:
        """A claim of this node by `namespace/name`."""
        return self._infos.get(key)

    def claims(self) -> list[ClaimInfo]:
        """All claims of this node."""
        return self._infos.all()

    def pods_with_device(self, driver: str, pool: str, device: str) -> list[str]:
        """The UIDs of the pods that use a device."""
        return [uid for info in self._infos.with_device(driver, pool, device) for uid in sorted(info.pods)]

    # -- prepare ------------------------------------------------------------------------------------------------------

    async def prepare(self, pod: Obj) -> Prepared:
        """Make the pod's claims ready. Raises `DevicesError`."""
        with self._timed("PrepareResources"):
            try:
                uses = pod_claims(pod)
                claims = [await self._read(pod, use) for use in uses]
                await self._check_and_prepare(pod, [_info(claim) for claim in claims])
                return Prepared(cdi_ids(pod, self.find))
            except NotPrepared as error:
                raise ClaimRefused(str(error)) from None
            except DevicesError as error:
                raise type(error)(f"prepare dynamic resources: {error}") from None

    async def _check_and_prepare(self, pod: Obj, infos: Sequence[ClaimInfo]) -> None:
        if not infos:
            return
        for info in infos:
            for driver in info.drivers:
                self._registry.get(driver)
        async with self._locked(info.key for info in infos):
            await self._prepare(infos, uid_of(pod))

    async def _read(self, pod: Obj, use: PodClaim) -> Obj:
        """The claim, which the pod may use. Raises `NotPrepared`, `DevicesError`."""
        claim = await self._get(CLAIMS, use.name, namespace_of(pod))
        check_claim(pod, use, claim)
        assert claim is not None
        await self._check_node(claim)
        return claim

    async def _check_node(self, claim: Obj) -> None:
        """Raises `ClaimRefused` for a claim allocated on other nodes; reads the Node's labels only if needed."""
        selector = claim["status"]["allocation"].get("nodeSelector")
        if not selector or node_selector_matches(selector, self._node_name, {}):
            return
        if any(term.get("matchExpressions") for term in selector["nodeSelectorTerms"]):
            node = await self._get(NODES, self._node_name, "")
            if node is not None and node_selector_matches(selector, self._node_name, labels_of(node)):
                return
        raise ClaimRefused(
            f"ResourceClaim {namespace_of(claim)}/{name_of(claim)} is allocated on other nodes than {self._node_name}"
        )

    async def _get(self, kind: Kind, name: str, namespace: str) -> Obj | None:
        """An object, None if there is none. Raises `DevicesError`."""
        try:
            return await self._client.get(kind, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            why = str(error)
        except (OSError, TimeoutError) as error:
            why = str(error) or "the API server does not answer"
        raise DevicesError(f"{kind.kind} {namespace}/{name}: {why}")

    async def _prepare(self, infos: Sequence[ClaimInfo], pod_uid: str) -> None:
        """With the claims locked: note them, ask the drivers of those that are not ready, note the answers."""
        for info in infos:  # all of them before any is noted
            self._infos.check(info)
        noted = [self._infos.begin(info, pod_uid) for info in infos]
        self._write()
        waiting = [info for info in noted if not info.is_prepared]
        by_driver: dict[str, list[ClaimInfo]] = {}
        for info in waiting:
            for driver in info.drivers:
                by_driver.setdefault(driver, []).append(info)
        for driver, some in by_driver.items():
            asked = [_asked(info) for info in some]
            answer = await self._ask(driver, methodcaller("prepare", asked))
            for info in some:
                self._infos.prepared(info.key, driver, [_device(device) for device in answer[info.uid]])
        for info in waiting:
            self._infos.finish(info.key)
        if waiting:
            self._write()

    # -- unprepare ----------------------------------------------------------------------------------------------------

    async def unprepare(self, pod_uid: str) -> None:
        """Give the pod's claims back, each with its last pod. Raises `DevicesError` after all were tried."""
        mine = self._infos.of_pod(pod_uid)
        if not mine:
            return
        failures: list[DevicesError] = []
        with self._timed("UnprepareResources"):
            for info in mine:
                try:
                    async with self._locked([info.key]):
                        await self._unprepare(info.key, pod_uid)
                except DevicesError as error:
                    failures.append(error)
            if failures:
                raise type(failures[0])("; ".join(map(str, failures)))

    async def _unprepare(self, key: str, pod_uid: str) -> None:
        info = self._infos.release(key, pod_uid)
        if info is not None:
            for driver in info.drivers:
                await self._ask(driver, methodcaller("unprepare", [_asked(info)]))
            self._infos.forget(key)
        self._write()

    async def reconcile(self, pod_uids: Collection[str]) -> list[DevicesError]:
        """Unprepare claims of pods that this node no longer has; the errors."""
        failures = []
        for pod_uid in self._infos.pods() - set(pod_uids):
            try:
                await self.unprepare(pod_uid)
            except DevicesError as error:
                failures.append(error)
        return failures

    async def _ask(self, driver: str, call: Callable[[Instance], Awaitable[T]]) -> T:
        """Call a driver, and again if it is restarting."""
        for attempt in range(ATTEMPTS):
            try:
                return await call(self._registry.get(driver))
            except (DriverAway, DriverMissing):
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    # -- small things -------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._checkpoint.store(self._infos.told())
        except CheckpointError as error:
            raise DevicesError(str(error)) from None
        self._count()

    def _count(self) -> None:
        self._metrics.claims.clear()
        for driver, count in self._infos.drivers_in_use().items():
            self._metrics.claims.labels(driver).set(count)

    @contextlib.asynccontextmanager
    async def _locked(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Lock claims, always in the same order, so that no deadlock arises."""
        wanted = sorted(set(keys))
        for key in wanted:
            lock, users = self._locks.get(key, (asyncio.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            async with contextlib.AsyncExitStack() as stack:
                for key in wanted:
                    await stack.enter_async_context(self._locks[key][0])
                yield
        finally:
            for key in wanted:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = (lock, users - 1)

    @contextlib.contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        began, failed = time.monotonic(), "true"
        try:
            yield
            failed = "false"
        finally:
            self._metrics.operations.labels(operation, failed).observe(time.monotonic() - began)


def _info(claim: Obj) -> ClaimInfo:
    results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
    drivers: dict[str, tuple[PreparedDevice, ...]] = {result["driver"]: () for result in results}
    return ClaimInfo(namespace_of(claim), name_of(claim), uid_of(claim), drivers=drivers)


def _asked(info: ClaimInfo) -> dra.Claim:
    return dra.Claim(namespace=info.namespace, uid=info.uid, name=info.name)


def _device(device: dra.Device) -> PreparedDevice:
    requests = tuple(name.partition("/")[0] for name in device.request_names)
    return PreparedDevice(device.pool_name, device.device_name, requests, tuple(device.cdi_device_ids), device.share_id)
