"""Another user of the card, for the tests: spins on it for the seconds given. Says `busy` once it does."""

import ctypes
import sys
import time

from cuda.bindings import driver as cu

from tests.gpu.support import TIMED, compile_plain


def main() -> None:
    cu.cuInit(0)
    _, device = cu.cuDeviceGet(0)
    _, context = cu.cuDevicePrimaryCtxRetain(device)
    cu.cuCtxSetCurrent(context)
    major = cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)[1]
    minor = cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)[1]
    _, module = cu.cuModuleLoadData(compile_plain(TIMED, f"sm_{major}{minor}"))
    _, spin = cu.cuModuleGetFunction(module, b"spin")
    n, a, nothing = ctypes.c_int(2_000_000), ctypes.c_float(1), ctypes.c_void_p(0)
    pointers = (ctypes.c_void_p * 5)(*(ctypes.addressof(v) for v in (n, a, nothing, nothing, nothing)))
    end = time.monotonic() + float(sys.argv[1])
    said = False
    while time.monotonic() < end:
        for _ in range(8):
            cu.cuLaunchKernel(spin, 264, 1, 1, 256, 1, 1, 0, 0, ctypes.addressof(pointers), 0)
        cu.cuCtxSynchronize()
        if not said:
            print("busy", flush=True)
            said = True


if __name__ == "__main__":
    main()
