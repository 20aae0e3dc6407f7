"""From watch events to the cache and the queue."""
