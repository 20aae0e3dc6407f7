"""NodeVolumeLimits: refuse nodes that can attach no more volumes. Extension points: Filter. Arguments: none."""
