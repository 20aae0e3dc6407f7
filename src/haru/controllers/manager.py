"""Runs a set of controllers by name, as kube-controller-manager's `--controllers` names them.

All share one set of informers. A controller that cannot run here (its gate is off, its API is not served) is left out
and that is said. One that fails is started again after a pause; the others go on.
Source: Kubernetes `kube-controller-manager --controllers`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.discovery import adapt_to_server
from haru.client.shared_informers import SharedInformers
from haru.clock import SYSTEM, Clock
from haru.controllers.base import Context, Controller, log
from haru.controllers.cluster_role_aggregation import ClusterRoleAggregationController
from haru.controllers.cron_job import CronJobController
from haru.controllers.daemon_set import DaemonSetController
from haru.controllers.deployment import DeploymentController
from haru.controllers.device_taint_eviction import DeviceTaintEvictionController
from haru.controllers.disruption import DisruptionController
from haru.controllers.endpoint_slice import EndpointSliceController
from haru.controllers.endpoint_slice_mirroring import EndpointSliceMirroringController
from haru.controllers.endpoints import EndpointsController
from haru.controllers.ephemeral_volume import EphemeralVolumeController
from haru.controllers.garbage_collector import GarbageCollectorController
from haru.controllers.horizontal_pod_autoscaler import HorizontalPodAutoscalerController
from haru.controllers.job import JobController
from haru.controllers.metrics import render
from haru.controllers.namespace import NamespaceController
from haru.controllers.node_lifecycle import NodeLifecycleController
from haru.controllers.objects import SLICES
from haru.controllers.pod_gc import PodGcController
from haru.controllers.podgroup_protection import PodGroupProtectionController
from haru.controllers.replica_set import ReplicaSetController, ReplicationControllerController
from haru.controllers.resource_claim import ResourceClaimController
from haru.controllers.resource_pool_status import ResourcePoolStatusController
from haru.controllers.resource_quota import ResourceQuotaController
from haru.controllers.root_ca import RootCaController
from haru.controllers.service_account import ServiceAccountController
from haru.controllers.service_account_token import ServiceAccountTokenController
from haru.controllers.service_cidr import ServiceCidrController
from haru.controllers.signing_request_approver import SigningRequestApproverController
from haru.controllers.signing_request_cleaner import SigningRequestCleanerController
from haru.controllers.signing_request_signer import SigningRequestSignerController
from haru.controllers.slices import kept_part
from haru.controllers.stale_gang import StaleGangController
from haru.controllers.stateful_set import StatefulSetController
from haru.controllers.taint_eviction import TaintEvictionController
from haru.controllers.ttl_after_finished import TtlAfterFinishedController
from haru.controllers.volume_binder import VolumeBinderController
from haru.controllers.volume_protection import (
    VolumeAttributesClassProtectionController,
    VolumeClaimProtectionController,
    VolumeProtectionController,
)
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates

CONTROLLERS: Mapping[str, type[Controller]] = {
    controller.name: controller
    for controller in (
        ClusterRoleAggregationController,
        CronJobController,
        DaemonSetController,
        DeploymentController,
        DeviceTaintEvictionController,
        DisruptionController,
        EndpointSliceController,
        EndpointSliceMirroringController,
        EndpointsController,
        EphemeralVolumeController,
        GarbageCollectorController,
        HorizontalPodAutoscalerController,
        JobController,
        NamespaceController,
        NodeLifecycleController,
        PodGcController,
        PodGroupProtectionController,
        ReplicaSetController,
        ReplicationControllerController,
        ResourceClaimController,
        ResourcePoolStatusController,
        ResourceQuotaController,
        RootCaController,
        ServiceCidrController,
        ServiceAccountController,
        ServiceAccountTokenController,
        SigningRequestApproverController,
        SigningRequestCleanerController,
        SigningRequestSignerController,
        StaleGangController,
        StatefulSetController,
        TaintEvictionController,
        TtlAfterFinishedController,
        VolumeAttributesClassProtectionController,
        VolumeBinderController,
        VolumeClaimProtectionController,
        VolumeProtectionController,
    )
}


def select_controllers(patterns: Iterable[str]) -> list[str]:
    """The names that a `--controllers` list chooses: `*` all, `name` one more, `-name` one less.

    The first entry that says something about a controller wins, as in kube-controller-manager.
    """
    listed = [pattern.strip() for pattern in patterns if pattern.strip()]
    for pattern in listed:
        name = pattern.removeprefix("-")
        if name != "*" and name not in CONTROLLERS:
            known = ", ".join(sorted(CONTROLLERS))
            raise ValueError(f"--controllers: {name!r} is not a controller; known are: {known}")
    chosen = []
    for name in CONTROLLERS:
        named = next((p for p in listed if p.removeprefix("-") == name), None)
        if named == name or (named is None and "*" in listed):
            chosen.append(name)
    return chosen


class ControllerManager:
    """A set of controllers over one client, which reads for all; `clients` gives each one of its own to write with."""

    def __init__(
        self,
        client: ApiClient,
        gates: FeatureGates | None = None,
        controllers: Sequence[str] = ("*",),
        *,
        clock: Clock = SYSTEM,
        options: Mapping[str, Any] | None = None,
        rng: random.Random | None = None,
        clients: Callable[[str], ApiClient] | None = None,
    ) -> None:
        self._client = client
        self._gates = gates or FeatureGates()
        self._names = select_controllers(controllers)
        self._clock = clock
        self._options = dict(options or {})
        self._rng = rng or random.Random()
        self._clients = clients
        self._started = asyncio.Event()
        self.running: dict[str, Controller] = {}

    @property
    def started(self) -> bool:
        """Whether every controller has its first lists."""
        return self._started.is_set()

    def metrics(self) -> bytes:
        """What the controllers count, in the text format of Prometheus."""
        return render(self.running)

    async def wait_started(self) -> None:
        """Wait until every controller has its first lists."""
        await self._started.wait()

    async def run(self) -> None:
        """Run until cancelled."""
        served = await self._discover()
        informers = SharedInformers(self._client, self._rng, {SLICES: kept_part})
        context = Context(
            self._client, informers, self._gates, self._clock.now, served, self._options, self._clock.monotonic
        )
        for name in self._names:
            if CONTROLLERS[name].enabled(context):
                self.running[name] = CONTROLLERS[name](self._own(name, context))
            else:
                log.info("%s: not started: a gate, an API or an option that it needs is not there", name)
        async with asyncio.TaskGroup() as group:
            group.create_task(informers.run(), name="informers")
            for name in self.running:
                group.create_task(self._keep_running(name, context), name=name)
            await informers.wait_synced()
            self._started.set()

    async def _discover(self) -> frozenset[tuple[str, str, str]]:
        pauses = Backoff(rng=self._rng)
        while True:
            try:
                return (await adapt_to_server(self._client)).resources
            except (StatusError, OSError) as error:
                log.warning("the API server does not say what it serves: %s", error)
                await pauses.pause()

    async def _keep_running(self, name: str, context: Context) -> None:
        pauses = Backoff(rng=self._rng)
        while True:
            try:
                await self.running[name].run()
                return
            except Exception:
                log.exception("%s failed and is started again", name)
            await pauses.pause()
            self.running[name] = CONTROLLERS[name](self._own(name, context))

    def _own(self, name: str, context: Context) -> Context:
        """The context as one controller sees it."""
        if self._clients is None or not CONTROLLERS[name].has_account:
            return context
        client = self._clients(name)
        client.version = self._client.version
        return replace(context, client=client)
