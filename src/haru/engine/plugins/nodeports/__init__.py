"""NodePorts: refuse nodes whose host ports are taken. Extension points: Filter. Arguments: none."""
