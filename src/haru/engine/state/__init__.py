"""The state of decisions: the cache that follows watch events, snapshots, overlays, decisions as values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
