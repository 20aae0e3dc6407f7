"""VolumeRestrictions: refuse nodes where a volume may not be shared. Extension points: Filter. Arguments: none."""
