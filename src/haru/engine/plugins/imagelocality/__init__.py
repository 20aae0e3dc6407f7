"""ImageLocality: score nodes by the images that they have. Extension points: Score. Arguments: none."""
