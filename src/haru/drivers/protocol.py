"""What a kubelet and a DRA driver say to each other: messages and the names of services, on both sides.

Sources: the APIs pluginregistration.v1, dra.v1, dra.v1beta1 and dra-health.v1alpha1 of the kubelet. Both versions of
the DRA service have the same messages, but that v1beta1 knows no share ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from haru.messages import Message, flag, many, named, one, text, texts, whole

PLUGIN_TYPE: Final = "DRAPlugin"
REGISTRATION: Final = "pluginregistration.Registration"
V1: Final = "v1.DRAPlugin"
V1BETA1: Final = "v1beta1.DRAPlugin"
HEALTH: Final = "v1alpha1.DRAResourceHealth"
SERVICES: Final = {
    V1: "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    V1BETA1: "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    HEALTH: "v1alpha1.DRAResourceHealth",
}
"""What a driver announces -> the service's name on the wire."""
UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2
HEALTH_NAMES: Final = {UNKNOWN: "Unknown", HEALTHY: "Healthy", UNHEALTHY: "Unhealthy"}


def method(service: str, name: str) -> str:
    """The path of a call of a service that is announced as `service`."""
    return f"/{SERVICES.get(service, service)}/{name}"


# -- registration ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Empty(Message):
    """InfoRequest, RegistrationStatusResponse, NodeWatchResourcesRequest."""


@dataclass(slots=True)
class PluginInfo(Message):
    """What a plugin says about itself."""

    type: str = text(1)
    name: str = text(2)
    endpoint: str = text(3)
    supported_versions: list[str] = texts(4)


@dataclass(slots=True)
class RegistrationStatus(Message):
    """What became of a registration."""

    plugin_registered: bool = flag(1)
    error: str = text(2)


# -- claims ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Claim(Message):
    """Which ResourceClaim; the driver reads the object itself."""

    namespace: str = text(1)
    uid: str = text(2)
    name: str = text(3)


@dataclass(slots=True)
class ClaimsRequest(Message):
    """NodePrepareResourcesRequest and NodeUnprepareResourcesRequest."""

    claims: list[Claim] = many(1, lambda: Claim)


@dataclass(slots=True)
class Device(Message):
    """A prepared device. Without request names it is for all requests of the claim."""

    request_names: list[str] = texts(1)
    pool_name: str = text(2)
    device_name: str = text(3)
    cdi_device_ids: list[str] = texts(4)
    share_id: str = text(5)


@dataclass(slots=True)
class PreparedClaim(Message):
    """NodePrepareResourceResponse: devices, or an error."""

    devices: list[Device] = many(1, lambda: Device)
    error: str = text(2)


@dataclass(slots=True)
class PrepareAnswer(Message):
    """NodePrepareResourcesResponse: by the claim's UID."""

    claims: dict[str, PreparedClaim] = named(1, lambda: PreparedClaim)


@dataclass(slots=True)
class UnpreparedClaim(Message):
    """NodeUnprepareResourceResponse."""

    error: str = text(1)


@dataclass(slots=True)
class UnprepareAnswer(Message):
    """NodeUnprepareResourcesResponse: by the claim's UID."""

    claims: dict[str, UnpreparedClaim] = named(1, lambda: UnpreparedClaim)


# -- health ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DeviceIdentifier(Message):
    """A device of the driver."""

    pool_name: str = text(1)
    device_name: str = text(2)


@dataclass(slots=True)
class DeviceHealth(Message):
    """How a device is. Times in seconds; the timeout says how long the report holds, 0 for the default."""

    device: DeviceIdentifier | None = one(1, lambda: DeviceIdentifier)
    health: int = whole(2)
    last_updated_time: int = whole(3)
    health_check_timeout_seconds: int = whole(4)
    message: str = text(5)


@dataclass(slots=True)
class HealthReport(Message):
    """NodeWatchResourcesResponse: all devices of the driver."""

    devices: list[DeviceHealth] = many(1, lambda: DeviceHealth)
