"""The services between a kubelet and a DRA driver; their messages are in `haru.proto.dra_pb2`.

Sources: the APIs pluginregistration.v1, dra.v1, dra.v1beta1 and dra-health.v1alpha1 of the kubelet.
"""

from __future__ import annotations

from typing import Final

from haru.proto import dra_pb2 as dra

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
HEALTH_NAMES: Final = {dra.UNKNOWN: "Unknown", dra.HEALTHY: "Healthy", dra.UNHEALTHY: "Unhealthy"}


def method(service: str, name: str) -> str:
    """The path of a call of a service that is announced as `service`."""
    return f"/{SERVICES.get(service, service)}/{name}"
