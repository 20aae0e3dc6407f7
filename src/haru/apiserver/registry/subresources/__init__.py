"""The handlers of subresources: what is written or read below an object."""
