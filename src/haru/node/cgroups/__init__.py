"""Cgroups of pods: paths, values, memory QoS.

`paths`, `memory_qos` and `amounts` are rules without input or output; `host` looks at the machine, `tree` writes.
"""
