"""The kubelet API: who may ask this node what, its pods, logs, statistics, and ways into its containers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
