"""ServiceAccount tokens: issued, checked, and told of to others; by keys in files, or by a signer outside."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
