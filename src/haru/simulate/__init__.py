"""Workloads in virtual time: traces replayed by several policies side by side, and manifests that arrive one by one.

Everything here is a pure function of its arguments: the same seed gives the same answer everywhere.
"""
