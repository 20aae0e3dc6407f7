"""Evictions of pods that use more storage of the node than they may."""
