"""Suite classifier: searching rules for packets in user space, on devices of OpenCL and CUDA."""
