"""What all handlers of one API server share: the store, the served resources, the clock, ids, look-ups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from haru.apiserver.config import ServerConfig
from haru.apiserver.http import RandomIds
from haru.apiserver.objects import decode, shared
from haru.apiserver.outlets import SharedPieces
from haru.apiserver.prepared import PreparedLists
from haru.apiserver.resources import Resource, Served
from haru.apiserver.static_tokens import StaticTokens
from haru.apiserver.tokens.service import AccountTokens
from haru.kube.gates import FeatureGates
from haru.kube.names import format_time
from haru.kube.validation.types import SelectorProblem
from haru.storage import Event, Record, Store, Watch

if TYPE_CHECKING:
    from haru.apiserver.admission.limits_of_namespaces import LimitsOfNamespaces
    from haru.apiserver.admission.pod_security import PodSecurity
    from haru.apiserver.aggregation import Aggregator
    from haru.apiserver.authorization import Authorizer
    from haru.apiserver.kubelets import Kubelets
    from haru.apiserver.peers import Peers

Obj = dict[str, Any]


class Closable(Protocol):
    """What ends when it is told to."""

    def close(self) -> None:
        """End."""


class Core:
    """One server's shared parts."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.store: Store = config.store
        self.gates: FeatureGates = config.gates
        self.served = Served(config.gates, config.runtime_config)
        self.clock: Callable[[], datetime] = config.clock
        self.tokens = StaticTokens(config.tokens)
        self.account_tokens = AccountTokens(self)
        self.authorizer: Authorizer | None = None
        self.limits: LimitsOfNamespaces | None = None
        """Quotas and limit ranges, once the server has started."""
        self.pod_security: PodSecurity | None = None
        self.watches: set[Watch] = set()
        self.new_uid = RandomIds().take
        """A fresh UUIDv4."""
        self.encoded_events: list[Event] = []
        """The events that carry their encoded lines, oldest first (kept by the watches)."""
        self.shared_pieces = SharedPieces()
        """What watches of the same resource send."""
        self.lists = PreparedLists()
        """The bytes of collections that were listed."""
        self.streams: set[Closable] = set()
        """Streams that end otherwise than by their watch."""
        self.peers: Peers | None = None
        """The other API servers on the store; None: this one does not look for any."""
        self.aggregator: Aggregator | None = None
        """Who leads to extension API servers, once the server is made."""
        self.kubelets: Kubelets | None = None
        """The kubelets of real nodes; None: they are not reached."""
        self.stopping = False
        self.listening: tuple[str, int] | None = None
        """The address and port that were last told to serve this server; the `kubernetes` Service leads there."""

    def follow(self, watch: Watch) -> Watch:
        """Remember a stream's watch, so that stopping ends the stream."""
        if self.stopping:
            watch.close()
        self.watches.add(watch)
        return watch

    def stop_streams(self) -> None:
        """End every stream, now and from now on."""
        self.stopping = True
        for each in (*self.watches, *self.streams):
            each.close()
        self.watches = set()

    def now(self) -> str:
        """The time as objects carry it."""
        return format_time(self.clock())

    def check_selector(self, expression: str) -> SelectorProblem | None:
        """Whether a CEL device selector compiles and stays within its cost."""
        from haru.cel.selectors import check_selector

        return check_selector(expression, self.gates)

    async def record(self, resource: Resource, namespace: str, name: str) -> Record | None:
        """The newest stored version of an object."""
        return await self.store.get(resource.key(namespace, name))

    async def read(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """Another object in its stored version, decoded afresh."""
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return decode(record) if record else None

    async def peek(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """As `read`, but shared: for small objects that many requests look at. Not to be changed."""
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return shared(record) if record else None

    async def peek_all(self, group: str, plural: str, namespace: str = "") -> list[Obj]:
        """All objects of a resource in their stored version, shared: not to be changed."""
        resource = self.served.find(group, plural)
        if resource is None:
            return []
        page = await self.store.range(resource.prefix(namespace))
        return [shared(record) for record in page.records]
