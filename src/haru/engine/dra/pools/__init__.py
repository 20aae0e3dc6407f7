"""Published devices: pools, their devices in order, and their shared counters."""
