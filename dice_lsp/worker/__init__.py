"""The judge: compile, run, compare, time. The only room that knows the GPU."""
