"""Who else uses the card, and how fast its clock is: what NVML says while kernels are timed."""

import logging
import os
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

SECOND_LOOK_S = 0.7
POWER_CAP_BIT = 0x4
"""NVML's reason that the clock is held down by the power cap: no fault, heavy kernels run at it for good."""
SETTLING_US = 200_000
"""A sample of NVML's tells about the sixth of a second before it, so the first ones after a moment are about the past."""


def now_us() -> int:
    return int(time.time() * 1e6)


class Monitor:
    """Clocks, throttling and other users of the card, from NVML. What NVML does not tell is left out, never guessed."""

    BUSY_PERCENT = 5

    def __init__(self, bus_id: str) -> None:
        self._nvml: Any = None
        self._started_us = now_us()
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            self._nvml = pynvml
        except Exception as error:
            log.info("NVML does not answer: %s", error)

    def _quietly(self, call: Callable[[], Any]) -> Any:
        if self._nvml is None:
            return None
        try:
            return call()
        except Exception as error:
            log.debug("NVML: %s", error)
            return None

    def reading(self) -> dict[str, Any]:
        """The SM clock in MHz and the bits of the reasons that hold it down; None where NVML has no answer."""
        nvml = self._nvml
        reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
            nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
        )
        return {
            "clock_mhz": self._quietly(lambda: nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
            "throttle": None if reasons is None else self._quietly(lambda: int(reasons(self._handle))),
        }

    def busy_reason(self, idle_s: float) -> str | None:
        """One sentence if somebody else computes on the card; `idle_s` is how long this process has not.

        What was going on may just have ended, as when a model has made the candidates that are timed now: then it is
        asked again a moment later, about that moment alone.
        """
        if self._others(now_us() - 1_000_000) is None and self._anybody(idle_s) is None:
            return None
        asked_us = now_us()
        time.sleep(SECOND_LOOK_S)
        return self._others(asked_us + SETTLING_US) or self._anybody(idle_s + SECOND_LOOK_S)

    def busy_since_start(self) -> str | None:
        """The same about the time since this monitor was made."""
        return self._others(self._started_us + SETTLING_US)

    def _processes(self) -> set[int]:
        nvml = self._nvml
        return {p.pid for p in self._quietly(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)) or []}

    def _others(self, after_us: int) -> str | None:
        """Another process in the samples since `after_us`, where the driver tells processes apart.

        In a container it may count them by numbers of another name space; then ours is not listed under its own, and
        nothing can be told to be somebody else's.
        """
        nvml = self._nvml
        rows = self._quietly(lambda: nvml.nvmlDeviceGetProcessUtilization(self._handle, after_us)) or []
        if os.getpid() not in self._processes():
            return None
        for row in rows:
            if row.timeStamp > after_us and row.pid != os.getpid() and row.smUtil > self.BUSY_PERCENT:
                return f"the GPU is busy: process {row.pid} uses {row.smUtil} % of it"
        return None

    def _anybody(self, idle_s: float) -> str | None:
        """The card's own figure, which counts this process too and looks back about a second."""
        if idle_s < 1.5 or os.getpid() in self._processes():
            return None
        nvml = self._nvml
        rates = self._quietly(lambda: nvml.nvmlDeviceGetUtilizationRates(self._handle))
        if rates is not None and rates.gpu > 3 * self.BUSY_PERCENT:
            return f"the GPU is busy: {rates.gpu} % of it is in use by others"
        return None
