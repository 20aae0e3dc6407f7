"""Accounting of devices: who holds them, whether they idle, and which work waits meanwhile.

The README of this folder shows the data flow and what each module does.
"""
