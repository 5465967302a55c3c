"""Indicators, front tables and plots of stored runs."""
