"""Dynamic Resource Allocation: which devices of a node a pod's claims get.

inventory   published devices, indexed; `Inventory.snapshot()` gives an immutable `DeviceSnapshot`
state       `AllocatedState`: what is taken, and by whom
allocate    `allocate(snapshot, allocated, node, claims, features)`: the first solution, or none
outfits     nodes that are alike but for identities, known as their slices and claims come
fleet       `Fleet`, `Question`: a whole cluster asked at once, equal nodes decided once
explain     `explain_requests(...)`: per request, how many devices are left after each condition
taints      tolerations; `tracker` offers slices with the taints of DeviceTaintRules added
"""

from haru.engine.devices.allocate import DEFAULT_BUDGET, Allocated, Allocation, DoesNotFit, allocate
from haru.engine.devices.claims import Claim, decode_claims
from haru.engine.devices.decode import decode_class, decode_slice
from haru.engine.devices.errors import AllocationError, GaveUp
from haru.engine.devices.fleet import Fleet
from haru.engine.devices.funnel import explain_requests
from haru.engine.devices.inventory import DeviceSnapshot, Inventory
from haru.engine.devices.model import Device, DeviceId, Features, NodeView, PoolKey, Slice
from haru.engine.devices.outfits import Dressed, Outfit, Outfits, Regard, Wardrobe, dressed_of
from haru.engine.devices.question import Question
from haru.engine.devices.reasons import DeviceRefusal, NodeFunnel, RequestFunnel, Stage
from haru.engine.devices.scoring import prioritized_score
from haru.engine.devices.state import AllocatedState, claim_key
from haru.engine.devices.tracker import TaintTracker

__all__ = [
    "DEFAULT_BUDGET",
    "Allocated",
    "AllocatedState",
    "Allocation",
    "AllocationError",
    "Claim",
    "Device",
    "DeviceId",
    "DeviceRefusal",
    "DeviceSnapshot",
    "DoesNotFit",
    "Dressed",
    "Features",
    "Fleet",
    "GaveUp",
    "Inventory",
    "NodeFunnel",
    "NodeView",
    "Outfit",
    "Outfits",
    "PoolKey",
    "Question",
    "Regard",
    "RequestFunnel",
    "Slice",
    "Stage",
    "TaintTracker",
    "Wardrobe",
    "allocate",
    "claim_key",
    "decode_claims",
    "decode_class",
    "decode_slice",
    "dressed_of",
    "explain_requests",
    "prioritized_score",
]
