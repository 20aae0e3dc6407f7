"""Gangs by the labels and objects of other projects, for clusters with or without Kubernetes' own PodGroups."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
