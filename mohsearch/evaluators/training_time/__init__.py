"""Iteration time and memory of large training runs on real clusters."""
