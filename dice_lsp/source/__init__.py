"""What CUDA text says: positions, kernels, launches, directives, selections. Never raises on bad code."""
