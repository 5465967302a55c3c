"""Which layers go to which accelerators: pipeline, data and tensor parallel training."""
