"""NodeName: refuse nodes that the pod does not name. Extension points: Filter. Arguments: none."""
