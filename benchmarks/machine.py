"""What a measurement says of the machine it was made on."""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def machine(command: str) -> dict[str, Any]:
    """Command, date, processor and versions; each benchmark adds what is its own."""
    return {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu_name(),
        "cores": torch.multiprocessing.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0]} ({torch.backends.cpu.get_cpu_capability()})" if names else platform.processor()
