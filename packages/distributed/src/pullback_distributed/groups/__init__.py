"""Process groups and their beginning and end; sends nothing itself but what MPI needs for that."""
