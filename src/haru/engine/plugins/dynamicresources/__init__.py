"""DynamicResources: refuse and score nodes by devices for claims. Extension points: PreFilter, Filter, Score.

The filter itself is the allocator (`haru.engine.dra`). Arguments (DynamicResourcesArgs): `bindingTimeout`;
`filterTimeout` is checked and changes nothing: the search is bounded by steps. PreBind is in haru.scheduler.binding.
"""
