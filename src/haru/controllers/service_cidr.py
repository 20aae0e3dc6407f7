"""service-cidr-controller: says which networks give Services addresses, and keeps those that have addresses in use.

A ServiceCIDR gets a finalizer and the condition Ready. One that is being deleted stays while it alone has an IPAddress
of a Service, and says so; then ten seconds more, in which the API servers hear that it gives out nothing.
Source: Kubernetes 1.36, pkg/controller/servicecidrs, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import IP_ADDRESSES, SERVICE_CIDRS, ConditionText
from haru.kube.errors import StatusError, suppress_status
from haru.kube.finalizers import SERVICE_CIDR_PROTECTION
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, has_finalizer, is_being_deleted, name_of
from haru.kube.names import parse_time
from haru.kube.service_networks import Network, address, holds, is_managed, networks_of

_LIFE_AFTER_USE = 10.0
_READY = ConditionText("Ready", "True", "", "Kubernetes Service CIDR is ready")
_IN_USE = ConditionText(
    "Ready",
    "False",
    "Terminating",
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
)


class ServiceCidrController(Controller):
    """Looks after ServiceCIDRs."""

    name: ClassVar[str] = "service-cidr-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SERVICE_CIDRS, IP_ADDRESSES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cidrs = self.informer(SERVICE_CIDRS)
        self.addresses = self.informer(IP_ADDRESSES)
        self.cidrs.add_index("being-deleted", lambda cidr: ["yes"] if is_being_deleted(cidr) else [])
        self.cidrs.add_handler(self._added, lambda _, new: self.enqueue(new))
        self.addresses.add_handler(self._address_changed, None, self._address_changed)

    def _added(self, cidr: Obj) -> None:
        """Another network may take over the addresses of one that is being deleted."""
        self.enqueue(cidr)
        networks = networks_of(cidr)
        for other in self.cidrs.by_index("being-deleted", "yes"):
            if any(_overlap(one, each) for one in networks for each in networks_of(other)):
                self._look_at(other)

    def _address_changed(self, ip_address: Obj) -> None:
        found = address(name_of(ip_address))
        if found is not None and is_managed(ip_address):
            for cidr in self.cidrs.by_index("being-deleted", "yes"):
                if any(holds(network, found) for network in networks_of(cidr)):
                    self._look_at(cidr)

    def _look_at(self, cidr: Mapping[str, Any]) -> None:
        self.gather(name_of(cidr), len(self.addresses.store))

    async def sync(self, key: str) -> float | None:
        """Bring one ServiceCIDR into line."""
        cidr = self.cidrs.store.get(key)
        if cidr is None:
            return None
        if not is_being_deleted(cidr):
            if not has_finalizer(cidr, SERVICE_CIDR_PROTECTION):
                patch = {"metadata": {"finalizers": [SERVICE_CIDR_PROTECTION]}}
                cidr = await self.patch(self.cidrs, cidr, patch, type="strategic")
            await self._say(cidr, _READY)
            return None
        if self._is_in_use(cidr):
            await self._say(cidr, _IN_USE)
            return None
        since = self.now() - parse_time(cidr["metadata"]["deletionTimestamp"])
        left = _LIFE_AFTER_USE - since.total_seconds()
        if left > 0:
            return left
        await self.remove_finalizer(self.cidrs, cidr, SERVICE_CIDR_PROTECTION)
        return None

    def _is_in_use(self, cidr: Obj) -> bool:
        """Whether a Service would have an address of no network without this one."""
        others = [other for name, other in self.cidrs.store.items() if name != name_of(cidr)]
        around = [network for other in others for network in networks_of(other)]
        own = [network for network in networks_of(cidr) if not any(_is_within(network, each) for each in around)]
        if not own:
            return False
        for ip_address in self.addresses.store.values():
            found = address(name_of(ip_address)) if is_managed(ip_address) else None
            if found is None or not any(holds(network, found) for network in networks_of(cidr)):
                continue
            if not any(holds(network, found) for network in around):
                return True
        return False

    async def _say(self, cidr: Obj, said: ConditionText) -> None:
        condition = get_condition(cidr, "Ready") or {}
        if all(condition.get(name, "") == text for name, text in said._asdict().items()):
            return
        status = {"conditions": [{**said._asdict(), "lastTransitionTime": self.timestamp()}]}
        configuration = {"apiVersion": SERVICE_CIDRS.api_version, "kind": SERVICE_CIDRS.kind, "status": status}
        configuration["metadata"] = {"name": name_of(cidr)}
        with suppress_status(404):
            try:
                applied = await self.client.patch(
                    SERVICE_CIDRS,
                    name_of(cidr),
                    configuration,
                    type="apply",
                    subresource="status",
                    field_manager=self.name,
                    force=True,
                )
            except StatusError as error:
                if said is _READY and error.code != 404:
                    why = "The ServiceCIDR Status can not be set to Ready=True"
                    self.events.event(cidr, "Warning", "KubernetesServiceCIDRError", why)
                raise
            self.cidrs.observe(applied)


def _overlap(one: Network, other: Network) -> bool:
    return _is_within(one, other) or _is_within(other, one)


def _is_within(one: Network, other: Network) -> bool:
    """Whether a network is part of another one, or the same."""
    return one.version == other.version and one.prefixlen >= other.prefixlen and one.network_address in other
