"""The cluster as somebody may see it who may see the objects of some namespaces only."""
