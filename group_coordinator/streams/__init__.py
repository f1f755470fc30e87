"""Streams groups: topologies, their tasks in three roles, and members that move towards the placement of the server."""
