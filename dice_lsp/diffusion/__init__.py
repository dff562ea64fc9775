"""The block-diffusion model: prompt, network, denoising, and the process that runs them."""
