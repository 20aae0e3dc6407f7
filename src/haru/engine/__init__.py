"""Every decision, as a pure function of a snapshot: devices, nodes and groups in one search."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
