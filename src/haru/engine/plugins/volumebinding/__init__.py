"""VolumeBinding: refuse pods and nodes by bound volumes. Extension points: PreFilter, Filter.

Arguments (VolumeBindingArgs): `bindTimeoutSeconds` is checked and changes nothing: volumes are not bound late.
"""
