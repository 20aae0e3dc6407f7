"""What keeps a pod from its devices: the text belongs into the pod's event (`FailedPrepareDynamicResources`).

DevicesError
├── ClaimRefused        the pod may not use a claim now: not there, not reserved, not allocated, not for this node
├── DriverMissing       a driver that the claim needs is not registered here
└── DriverFailed        a driver said no, or makes no sense; it is tried again
    └── DriverAway      a driver cannot be reached
"""

from __future__ import annotations

from haru.node.dra.devices import DevicesError


class ClaimRefused(DevicesError):
    """The pod may not use a claim now."""


class DriverMissing(DevicesError):
    """A driver is not registered on this node."""


class DriverFailed(DevicesError):
    """A call of a driver failed."""


class DriverAway(DriverFailed):
    """A driver could not be reached: it may be back in a moment."""
