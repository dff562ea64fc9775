"""What the user's own program gives its kernels, recorded while it runs, and read back as inputs and golden outputs."""
