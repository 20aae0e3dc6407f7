"""The head of the queue and the reservation that is kept for it."""
