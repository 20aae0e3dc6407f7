"""NodeDeclaredFeatures: refuse nodes without the features that a pod uses. Extension points: Filter.

Arguments: none. The feature gate NodeDeclaredFeatures (KEP-5328) turns it off.
"""
