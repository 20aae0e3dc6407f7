"""The audit log: who asked for what and what came of it, as events of audit.k8s.io/v1, in a file, to a webhook or both.

A policy says of each request how much of it is told; the telling is done behind bounded queues.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
