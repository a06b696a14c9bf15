"""Messages between the processes of a group: collectives, point to point, Python objects."""
