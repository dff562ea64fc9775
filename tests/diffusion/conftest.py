"""Settings that must stand before torch is imported."""

import os

# Threads that wait by spinning slow each other down twentyfold when another process wants the same few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
