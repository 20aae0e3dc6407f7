"""Every decision, as a pure function of a snapshot: devices, nodes and groups in one search."""
