"""The searches as pymoo problems with named, united metrics."""
