"""From a snapshot to an answer: does it run, why not, and what would help; every remedy confirmed by re-solving."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
