"""The four ways to change an object in part: JSON patch, merge patch, strategic merge patch, server-side apply.

Every function takes the present object and the change and returns a new object; failures are `StatusError`s.
"""
