"""One request: its transport, body, limits, and what it is aimed at."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
