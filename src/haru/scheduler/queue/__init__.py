"""What waits, in which order, what holds it back, and what wakes it."""
