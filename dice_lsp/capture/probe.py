"""Asks the driver in a process of its own, so that neither a server nor a command loads it.

Prints one JSON object: the driver's CUDA version and the number of GPUs, or what the loader says to our library and CUPTI.
"""

import ctypes
import json
import sys


def main() -> None:
    """`python -m dice_lsp.capture.probe` asks the driver, with LIBRARY and CUPTI only whether those can be loaded."""
    found: dict[str, object] = {}
    if len(sys.argv) > 1:
        for name, path in zip(("library", "cupti"), sys.argv[1:3], strict=False):
            try:
                ctypes.CDLL(path)
                found[name] = ""
            except OSError as error:
                found[name] = str(error)
    else:
        found = {"driver": "", "cuda": 0, "status": 0, "devices": 0}
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
    print(json.dumps(found))


if __name__ == "__main__":
    main()
