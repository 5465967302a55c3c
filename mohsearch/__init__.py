"""mohsearch: multi-objective search of deep-learning hardware."""

__version__ = "0.1.0"
