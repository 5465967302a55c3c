"""When each operator of a layer runs on the tensor and vector cores of one accelerator."""
