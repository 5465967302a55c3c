"""Studies: spec, plan, run and store."""
