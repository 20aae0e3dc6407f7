"""What every resource does: create, update, delete, list, watch, and the strategies of kinds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
