"""The program that `compute-sanitizer` looks at: loads device code, launches it on the cases of a plan, and ends.

    python -I -S sanitized_run.py FOLDER

It stands alone and needs nothing but the standard library and the driver: the tool starts it once per check, so every
import would be paid for each time. FOLDER holds a plan as `worker.sanitizer` writes it, the device code and the inputs.
A buffer without inputs is allocated and not touched, so that `initcheck` sees whoever reads it unwritten.

When every launch has come to its end there is a file `ended`; otherwise one line on stderr says why not, and the exit
code is `UNUSABLE`. After a launch that failed nothing more is tried: its context is lost.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
from typing import Any

PLAN, CODE, INPUTS, ENDED = "plan.json", "code.cubin", "inputs.bin", "ended"
"""Files of the folder."""
UNUSABLE = 73
MAX_DYNAMIC_SMEM_BYTES_ATTRIBUTE = 8
"""`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of cuda.h."""
STATIC_SMEM_LIMIT_BYTES = 48 << 10
PR_SET_PDEATHSIG = 1


class Unusable(Exception):
    """Something could not be done; the message is one phrase."""


class Driver:
    """The few calls of libcuda that a launch needs."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Unusable(f"no NVIDIA driver: {error}") from error

    def ask(self, name: str, *arguments: Any) -> None:
        """Call a driver function; raises `Unusable` with the driver's own word for the error."""
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise Unusable(f"{name} answered {self._word(code)}")

    def _word(self, code: int) -> str:
        word = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(word))
        return f"error {code}" if word.value is None else word.value.decode()


def run(folder: str) -> None:
    """Launch every case of the plan once, each with buffers of its own."""
    with open(os.path.join(folder, PLAN), encoding="utf-8") as file:
        plan = json.load(file)
    with open(os.path.join(folder, CODE), "rb") as file:
        code = file.read()
    with open(os.path.join(folder, INPUTS), "rb") as file:
        inputs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    base = ctypes.addressof(ctypes.c_char.from_buffer(inputs))
    driver = Driver()
    driver.ask("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.ask("cuDeviceGet", ctypes.byref(device), int(plan["device"]))
    driver.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.ask("cuCtxSetCurrent", context)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.ask("cuModuleLoadData", ctypes.byref(module), code)
    driver.ask("cuModuleGetFunction", ctypes.byref(function), module, plan["symbol"].encode())
    for launch in plan["launches"]:
        _set_variables(driver, module, launch["variables"])
        _launch(driver, function, launch, base)
    with open(os.path.join(folder, ENDED), "w", encoding="utf-8"):
        pass


def _set_variables(driver: Driver, module: ctypes.c_void_p, variables: dict[str, str]) -> None:
    for name, digits in variables.items():
        data = bytes.fromhex(digits)
        address, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        driver.ask("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(nbytes), module, name.encode())
        if nbytes.value < len(data):
            raise Unusable(f"the variable {name} has {nbytes.value} bytes, {len(data)} were recorded")
        driver.ask("cuMemcpyHtoD_v2", address, ctypes.create_string_buffer(data, len(data)), ctypes.c_size_t(len(data)))


def _launch(driver: Driver, function: ctypes.c_void_p, launch: dict[str, Any], base: int) -> None:
    smem_bytes = int(launch["smem_bytes"])
    if smem_bytes > STATIC_SMEM_LIMIT_BYTES:
        driver.ask("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM_BYTES_ATTRIBUTE, smem_bytes)
    buffers: dict[str, ctypes.c_uint64] = {}
    values: list[Any] = []
    for argument in launch["arguments"]:
        if "data" in argument:
            continue
        address, nbytes = ctypes.c_uint64(), ctypes.c_size_t(argument["nbytes"])
        driver.ask("cuMemAlloc_v2", ctypes.byref(address), nbytes)
        if argument["offset"] is not None:
            driver.ask("cuMemcpyHtoD_v2", address, ctypes.c_void_p(base + argument["offset"]), nbytes)
        buffers[argument["name"]] = address
    for argument in launch["arguments"]:
        if "data" in argument:
            data = bytearray.fromhex(argument["data"])
            for at, buffer, byte_offset in argument["pointers"]:
                data[at : at + 8] = (buffers[buffer].value + byte_offset).to_bytes(8, "little")
            values.append(ctypes.create_string_buffer(bytes(data)))
        elif argument["passed"]:
            values.append(buffers[argument["name"]])
    pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
    # Copies from plain memory may still be under way when they return.
    driver.ask("cuCtxSynchronize")
    driver.ask("cuLaunchKernel", function, *launch["grid"], *launch["block"], smem_bytes, None, pointers, None)
    driver.ask("cuCtxSynchronize")
    for address in buffers.values():
        driver.ask("cuMemFree_v2", address)


def main() -> int:
    # The tool stands between us and whoever gave it a deadline: when it is killed, this process must not stay on the card.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        run(sys.argv[1])
    except Unusable as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
