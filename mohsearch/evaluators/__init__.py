"""What it costs: pure functions from workload and hardware to metrics."""
