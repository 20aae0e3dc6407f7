"""`pods/proxy` and `services/proxy`: HTTP to pods by way of the API server, for who may, and cannot reach them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
