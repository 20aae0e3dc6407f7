"""NodeResourcesFit and NodeResourcesBalancedAllocation: refuse and score nodes by resources.

Extension points: Filter (NodeResourcesFit), Score (both). Arguments: `scoringStrategy`, `ignoredResources` and
`ignoredResourceGroups` of NodeResourcesFitArgs, `resources` of NodeResourcesBalancedAllocationArgs.
"""
