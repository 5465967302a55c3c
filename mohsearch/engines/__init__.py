"""Search algorithms behind one ask-and-tell interface."""
