"""Dynamic Resource Allocation: which devices of a node a pod's claims get.

inventory   published devices, indexed; `Inventory.snapshot()` gives an immutable `DeviceSnapshot`
state       `AllocatedState`: what is taken, and by whom
allocate    `allocate(snapshot, allocated, node, claims, features)`: the first solution, or none
node device classes     nodes that are alike but for identities, known as their slices and claims come
fleet       `Fleet`, `Question`: a whole cluster asked at once, equal nodes decided once
explain     `explain_requests(...)`: per request, how many devices are left after each condition
taints      tolerations and DeviceTaintRules
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
