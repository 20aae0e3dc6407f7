"""What a DRA driver needs, so that a driver itself is about a hundred lines: see `server` for one in ten.

    server.py      sockets, slices and health from start to stop: `DriverServer`
    preparing.py   prepare and unprepare: idempotent, crash-safe; `Plugin` is what an author writes
    claims.py      what a claim was given, and the checkpoint
    errors.py      errors that become a claim's
    pools.py       pools, and the ResourceSlices that say so
    publisher.py   keeps the slices in the API
    health.py      health as a stream and as taints
    metadata.py    metadata files in containers (KEP-5304)

Source: k8s.io/dynamic-resource-allocation, as behaviour; written anew.
"""

from haru.drivers.cdi.edits import DeviceNode, Edits, Mount
from haru.drivers.library.claim_service import Plugin
from haru.drivers.library.claims import Allocated, ClaimToPrepare, Entry, ReadyDevice
from haru.drivers.library.errors import ClaimChanged, ClaimError, ClaimUnreadable, ConfigError, DeviceError
from haru.drivers.library.health import Health
from haru.drivers.library.pools import Pool, Slice
from haru.drivers.library.server import DriverOptions, DriverServer

__all__ = [
    "Allocated",
    "ClaimChanged",
    "ClaimError",
    "ClaimToPrepare",
    "ClaimUnreadable",
    "ConfigError",
    "DeviceError",
    "DeviceNode",
    "DriverOptions",
    "DriverServer",
    "Edits",
    "Entry",
    "Health",
    "Mount",
    "Plugin",
    "Pool",
    "ReadyDevice",
    "Slice",
]
