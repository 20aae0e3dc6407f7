"""NodeUnschedulable: refuse cordoned nodes. Extension points: Filter. Arguments: none."""
