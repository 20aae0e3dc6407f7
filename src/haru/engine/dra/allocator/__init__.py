"""The allocator: the first complete choice of devices in a fixed order, with pruning and symmetry."""
