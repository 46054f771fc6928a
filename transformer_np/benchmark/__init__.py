"""How fast and how large a training step is on this machine, beside PyTorch where it is installed."""

from .machine import describe_machine, gemm_rate
from .report import growth_table, megabytes, step_table, table
from .sides import Side, alternate
from .sizes import GROWTH, SIZES, StepSize
from .steps import geometric_mean, growth, step_row, torch_installed

__all__ = [
    "GROWTH",
    "SIZES",
    "Side",
    "StepSize",
    "alternate",
    "describe_machine",
    "gemm_rate",
    "geometric_mean",
    "growth",
    "growth_table",
    "megabytes",
    "step_row",
    "step_table",
    "table",
    "torch_installed",
]
