"""Who a request is from and what it may do: certificates, tokens, RBAC, the node authorizer."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
