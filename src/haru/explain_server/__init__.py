"""Answer `why does it wait` for tenants: an extension API server over a watched cache, `explain.haru.dev/v1alpha1`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
