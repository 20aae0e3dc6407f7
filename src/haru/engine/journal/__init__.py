"""What decisions are made from and what they were, as JSON values: written by a scheduler, replayed by anybody.

A journal is a list of entries: every change that a `Cluster` was told of, and every decision with its options. Who
applies the changes in order has the very snapshots that the decisions were made on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
