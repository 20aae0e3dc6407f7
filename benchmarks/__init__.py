"""Benchmarks: each module runs alone (`python -m benchmarks.startup`) or all together (`make bench`).

A benchmark yields `Result` values; absolute times are scaled to a machine on which the calibration loop takes 0.20 s.
"""
