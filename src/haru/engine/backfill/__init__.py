"""Reservations for the head of the queue, so that smaller work does not starve it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
