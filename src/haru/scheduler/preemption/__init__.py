"""Carry out preemption: delete victims, nominate pods."""
