"""Control groups: where pods have theirs, what is written there, and how the kernel is asked to treat memory.

`paths`, `memory_qos` and `amounts` are rules without input or output; `host` looks at the machine, `tree` writes.
"""
