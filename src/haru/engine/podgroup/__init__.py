"""The PodGroup scheduling cycle: place all pending members at once or none; `pre_enqueue` gates pods before it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
