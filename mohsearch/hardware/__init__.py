"""On what: technology, components and sub-accelerator templates."""
