"""DynamicResources: refuse and score nodes by devices for claims. Extension points: PreFilter, Filter, Score.

The filter itself is the allocator (`haru.engine.dra`). Arguments (DynamicResourcesArgs): `filterTimeout` and
`bindingTimeout` are checked and change nothing: the search is bounded by steps.
"""
