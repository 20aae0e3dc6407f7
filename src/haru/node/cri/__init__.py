"""The Container Runtime Interface, `runtime.v1`: messages, a client of it, lists that have no limit."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
