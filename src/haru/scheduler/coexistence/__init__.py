"""Share a cluster with other schedulers: partitions, devices allocated twice, allocations given back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
