"""What is left of nodes and cards, valued by what work is expected to ask for: the measure of Haru's packing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
