"""Simulated accelerators: profiles of nodes, their devices as real drivers publish them, and the driver that does.

Pure are `profiles` (what exists), `geometry` (MIG), `slices` and `objects` (API objects of a node), `taints` (the
maintenance annotation); `driver` publishes. Sources: the NVIDIA DRA driver and KEP 4815, 5055, 5075, as behaviour.
"""
