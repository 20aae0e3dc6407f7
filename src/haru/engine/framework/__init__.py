"""What plugins and decisions share: options, profiles, filter plans, scores and statuses."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
