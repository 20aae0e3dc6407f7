"""GangScheduling: place a quorum of a PodGroup or none of it. Extension points: PreEnqueue, Permit. Arguments: none."""
