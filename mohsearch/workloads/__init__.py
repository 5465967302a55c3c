"""What runs: operator graphs, networks and applications."""
