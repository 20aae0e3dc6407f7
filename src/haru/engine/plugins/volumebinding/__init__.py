"""VolumeBinding: refuse pods and nodes by volumes, and choose volumes. Extension points: PreFilter, Filter, Reserve.

Its PreBind is in haru.scheduler.binding. Score: off as in 1.36 (StorageCapacityScoring is alpha).
Arguments (VolumeBindingArgs): `bindTimeoutSeconds`.
"""
