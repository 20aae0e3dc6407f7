"""The function libraries. Each module declares one `Library`; environments choose among them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
