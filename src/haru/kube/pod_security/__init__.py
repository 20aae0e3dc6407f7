"""Pod Security Standards: what pods may ask of their node at the levels privileged, baseline and restricted. Pure.

levels      levels, versions, and what the labels of a namespace say
checks      what a check is, and what several of them find together
baseline    the checks of the level baseline
restricted  those that restricted adds, some in place of weaker ones
evaluating  which checks there are at a level and version, and whether a pod passes them
templates   the pods inside workloads
Source: k8s.io/pod-security-admission, as behaviour; its words as in 1.36.
"""
