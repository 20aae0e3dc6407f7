"""Dynamic resources on a node, as the kubelet has them: `NodeDevices` is all of it, usable without an agent.

    registry.py       finds drivers by their sockets and registers them
    plugins.py        the calls of one driver
    manager.py        prepares the claims of pods and gives them back
    bookkeeping.py    which claims are prepared for whom (pure)
    containers.py     which container gets what, and its `allocatedResourcesStatus` (pure)
    health.py         how devices are, by the drivers' streams
    slices.py         removes the slices of drivers that are gone
    pod_resources.py  the PodResources endpoint
    metrics.py        under the kubelet's names
    errors.py         errors whose text belongs into a pod's event

Sources: KEP-4381, KEP-4680, KEP-3695; kubelet `cm/dra`, as behaviour.
"""

from haru.node.devices import DevicesError, Prepared
from haru.node.dra.errors import ClaimRefused, DriverAway, DriverFailed, DriverMissing
from haru.node.dra.manager import DeviceManager
from haru.node.dra.node_devices import NodeDevices

__all__ = [
    "ClaimRefused",
    "DeviceManager",
    "DevicesError",
    "DriverAway",
    "DriverFailed",
    "DriverMissing",
    "NodeDevices",
    "Prepared",
]
