"""Dynamic resources on a node, as the kubelet has them: `NodeDevices` is all of it, usable without an agent.

    registry.py       finds drivers by their sockets and registers them
    plugins.py        the calls of one driver
    manager.py        prepares the claims of pods and gives them back
    bookkeeping.py    which claims are prepared for whom (pure)
    containers.py     which container gets what (pure)
    health.py         how devices are, by the drivers' streams
    slices.py         removes the slices of drivers that are gone
    pod_resources.py  the PodResources endpoint
    metrics.py        under the kubelet's names
    errors.py         errors whose text belongs into a pod's event

Sources: KEP-4381, KEP-4680, KEP-3695; kubelet `cm/dra`, as behaviour.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
