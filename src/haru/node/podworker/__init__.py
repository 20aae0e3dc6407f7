"""One pod: what it needs next, and how that is done in the runtime."""
