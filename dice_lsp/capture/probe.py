"""Asks the driver in a process of its own, so that neither a server nor a command loads it.

Prints one JSON object: the driver's CUDA version, the number of GPUs, and what the loader says to our library and CUPTI.
"""

import ctypes
import json
import sys


def main() -> None:
    """`python -m dice_lsp.capture.probe LIBRARY CUPTI`, either of which may be empty."""
    found = {"driver": "", "cuda": 0, "status": 0, "devices": 0, "library": "", "cupti": ""}
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        found["driver"] = str(error)
    else:
        number = ctypes.c_int(0)
        if driver.cuDriverGetVersion(ctypes.byref(number)) == 0:
            found["cuda"] = number.value
        found["status"] = driver.cuInit(0)
        if found["status"] == 0 and driver.cuDeviceGetCount(ctypes.byref(number)) == 0:
            found["devices"] = number.value
    for name, path in zip(("library", "cupti"), sys.argv[1:3], strict=False):
        if path:
            try:
                ctypes.CDLL(path)
            except OSError as error:
                found[name] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
