"""VolumeZone: refuse nodes outside of the volumes' zones. Extension points: Filter. Arguments: none."""
