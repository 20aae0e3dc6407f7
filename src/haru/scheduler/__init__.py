"""The live loop: a cache of the cluster, a queue of what waits, the scheduling cycle, and binding.

Watch events feed the engine's `Cluster`; units of work (a PodGroup's pods, or one pod) wait in the `SchedulingQueue`;
one at a time is decided by `haru.engine.decide` on a snapshot; the decision is enacted through the API:
claims first, then bindings, then conditions and events. Source: kube-scheduler 1.36 as behaviour, KEP-4671.
"""
