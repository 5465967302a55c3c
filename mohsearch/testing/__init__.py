"""Contract suites that run over every registered name."""
