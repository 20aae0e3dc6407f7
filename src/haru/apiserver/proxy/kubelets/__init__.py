"""The kubelets of real nodes: logs of their pods, ways into containers, and what else their API shows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
