"""Fill CUDA kernels with a diffusion language model, and show what each candidate is worth."""

__version__ = "0.1.0"
