"""Assemble, start and stop the parts of one API server."""

from __future__ import annotations

import asyncio
import logging

from haru.apiserver.admission.dynamic.registry import DynamicPlugins
from haru.apiserver.admission.plugins import Admission
from haru.apiserver.admission.pod_security import PodSecurity
from haru.apiserver.admission.quotas import NamespaceLimits, ResourceQuota
from haru.apiserver.aggregation.server import Aggregator
from haru.apiserver.apiextensions.definitions import Definitions
from haru.apiserver.audit.auditor import Auditor
from haru.apiserver.auth.authentication import Authenticator
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.tokens.issuer import AccountTokens
from haru.apiserver.background import Background
from haru.apiserver.bootstrap import objects as bootstrap_objects
from haru.apiserver.bootstrap.kubernetes_service import withdraw
from haru.apiserver.config import ServerConfig
from haru.apiserver.encryption.reload import Reloader
from haru.apiserver.flow_schemas import FlowSchemaStatus
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.observability.metrics import Metrics
from haru.apiserver.peers.server import Peers
from haru.apiserver.proxy.forward import Proxy
from haru.apiserver.proxy.kubelets.connections import KubeletProxy
from haru.apiserver.proxy.targets import TargetResolver
from haru.apiserver.registry.handlers import Handlers
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.serving_address import ServingAddress
from haru.apiserver.start_retry import until_store_answers
from haru.apiserver.streams import OpenStreams
from haru.event_loop import cancelled
from haru.kube.custom.definitions import GROUP, PLURAL
from haru.kube.errors import StatusError
from haru.storage import Compacted, StoreError

FOLLOW_SECONDS = 60.0
FOLLOW_PAUSE_SECONDS = 1.0
_WITH_STATUS = (
    (GROUP, PLURAL),
    ("apiregistration.k8s.io", "apiservices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
)
"""What the server itself gives a status to, or lets go."""
_LOG = logging.getLogger("haru.apiserver")


class StoredConfiguration:
    """What objects in the store configure: rights, custom resources, API services, webhooks and policies."""

    def __init__(
        self,
        loopback: Loopback,
        authorizer: Authorizer,
        dynamic: DynamicPlugins,
        aggregator: Aggregator,
        streams: OpenStreams,
    ) -> None:
        self._store, self._served = loopback.objects.store, loopback.objects.served
        self._authorizer = authorizer
        self._definitions = Definitions(loopback, streams.withdraw)
        self._flow_schemas = FlowSchemaStatus(loopback)
        self.dynamic = dynamic
        self.aggregator = aggregator
        self._revision = -1
        """The revision at which the last request was routed."""
        self._following: list[asyncio.Task[None]] = []

    async def start(self, limits: NamespaceLimits) -> None:
        """Read everything, and follow it from there."""
        await self._authorizer.start()
        await self._definitions.start()
        await self._flow_schemas.start()
        await self.dynamic.start()
        await limits.start()
        await self.aggregator.start()
        prefixes = [self._served.preferred(*each).prefix("") for each in _WITH_STATUS]
        self._following = [asyncio.create_task(self._follow(each), name=f"haru apiserver: {each}") for each in prefixes]

    @property
    def is_current(self) -> bool:
        """Whether the store has not changed since `refresh`."""
        return self._store.revision == self._revision

    async def refresh(self) -> None:
        """Take in the changes that decide how a request is routed and authorized."""
        revision = self._store.revision
        await self._authorizer.refresh()
        await self._definitions.refresh()
        await self._flow_schemas.refresh()
        await self.aggregator.refresh()
        self._revision = revision

    async def _follow(self, prefix: str) -> None:
        """Take changes in that no request comes after: who watches is to see what the server makes of them."""
        watch = self._store.watch(prefix, self._store.revision)
        while not watch.closed:
            await watch.wait(FOLLOW_SECONDS)
            try:
                watch.pending()
                await self.refresh()
            except Compacted:
                watch.close()
                watch = self._store.watch(prefix, self._store.revision)
            except (StoreError, StatusError) as error:
                _LOG.warning("changes of %s could not be taken in: %s", prefix, error)
                await asyncio.sleep(FOLLOW_PAUSE_SECONDS)

    async def stop(self) -> None:
        """End the work that changes of the store have begun."""
        await cancelled(*self._following)
        await self.aggregator.stop()
        self._flow_schemas.stop()
        await self._definitions.stop()
        await self.dynamic.stop()


class Components:
    """The parts of one server. Each is given the few others that it needs."""

    def __init__(self, config: ServerConfig) -> None:
        self.objects = objects = ObjectStore(config)
        self.streams = streams = OpenStreams()
        self.address = ServingAddress(config.advertise_address)
        self.metrics = Metrics(objects)
        self.authorizer = Authorizer(objects)
        self._limits = NamespaceLimits(objects)
        pod_security = PodSecurity(config.admission, config.gates.minor)
        quota = ResourceQuota(self._limits, config.admission)
        self.loopback = Loopback(objects, Admission(self.authorizer, self._limits, pod_security, quota))
        authentication = config.authentication
        account_tokens = AccountTokens(
            objects, authentication.account_tokens, authentication.service_account_key_pem, self.address
        )
        self.authenticator = Authenticator(authentication, account_tokens)
        dynamic = DynamicPlugins(self.loopback, self.authorizer)
        aggregator = Aggregator(self.loopback, streams, config.aggregation)
        self.configuration = StoredConfiguration(self.loopback, self.authorizer, dynamic, aggregator, streams)
        kubelets = None
        if config.kubelets is not None:
            from haru.apiserver.proxy.kubelets.client import Kubelets

            kubelets = Kubelets(objects, config.kubelets)
        simulated = SimulatedPods(self.loopback, account_tokens)
        self.kubelet_proxy = KubeletProxy(objects, kubelets, simulated, streams)
        self.proxy = Proxy(TargetResolver(objects, kubelets), streams)
        self.peers: Peers | None = None
        """The other API servers on the same store; None: this server looks for none."""
        if config.peers is not None and config.gates.enabled("APIServerIdentity"):
            self.peers = Peers(self.loopback, config.peers, self.address, streams)
        self.handlers = Handlers(self.authenticator, self.authorizer, kubelets, simulated, streams)
        self.auditor = Auditor(config.audit, config.clock) if config.audit is not None else None
        reloader = self._reloader(config)
        self.background = Background(self.loopback, self.address, self.handlers.lists, reloader)
        self.metrics.more += [dynamic.counts.lines, pod_security.lines, account_tokens.metrics.lines]
        if self.peers is not None:
            self.metrics.more.append(self.peers.counts.lines)
        if config.encryption.sealing is not None:
            self.metrics.more.append(config.encryption.sealing.lines)
        if reloader is not None:
            self.metrics.more.append(reloader.lines)

    def _reloader(self, config: ServerConfig) -> Reloader | None:
        sealing, file = config.encryption.sealing, config.encryption.reloaded_file
        if sealing is None:
            return None
        sealing.server = self.peers.identity.name if self.peers is not None else ""
        return Reloader(file, sealing) if file is not None else None

    async def start(self) -> None:
        """Write what every cluster starts with, and read what the store configures."""
        await self.authenticator.account_tokens.start()
        if self.auditor is not None:
            await self.auditor.start()
            self.metrics.more.append(self.auditor.metrics)
        await until_store_answers(
            "what every cluster starts with", lambda: bootstrap_objects.ensure(self.loopback, self.objects.gates)
        )
        await self.configuration.start(self._limits)
        self.background.start()

    async def stop(self) -> None:
        """End all streams and stop the server's own work."""
        self.streams.stop()
        await self.configuration.stop()
        await self.background.stop()
        await withdraw(self.loopback, self.address)
        await self.kubelet_proxy.close()
        await self.proxy.close()
        await self.authenticator.account_tokens.stop()
        if self.auditor is not None:
            await self.auditor.stop()
