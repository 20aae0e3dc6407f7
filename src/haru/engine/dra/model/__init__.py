"""Slices, classes and claims, decoded: what the allocator works on."""
