"""Errors, cards, catalogue, registry, digests and seeded generators."""
