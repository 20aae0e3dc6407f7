"""Evictions of pods that use more storage than they may, or whose node is under pressure; unused images."""

from haru.node.eviction.thresholds import parse_thresholds as parse_thresholds
