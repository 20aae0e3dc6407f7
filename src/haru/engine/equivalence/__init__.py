"""One cache seam: signatures and classes of equal nodes, pods and devices, and the results kept by them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
