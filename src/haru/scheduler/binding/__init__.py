"""Carrying a decision out: claims are reserved, then pods are bound; or all is taken back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
