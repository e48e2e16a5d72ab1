"""How a launch is emulated: what is checked, and how much may run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and switches of an emulated launch.

    `step_limit` counts back edges of loops and lanes at suspension points over the whole launch: some ten times as many
    instructions. `lanes_per_wave` and `shared_bytes_per_wave` bound what runs side by side (whole clusters, at least
    one); a kernel that waits on memory for other blocks gets as many blocks as the GPU holds, or `resident_blocks` of a
    smaller one. `fuel` is how many back
    edges a lane takes before it gives way. `tensor_core_sm`: whose tensor cores matrix products round like, such as 90
    for code of sm_80 that runs on an H200; 0 means those of the program's target. `fill` is the byte that shared,
    local and tensor memory hold before they are written. `order`: in which order asynchronous work completes
    (engines/completion_orders.py). `orders`: in how many, from that one on, a device runs launches with bulk
    copies, mbarriers or warps that only arrive at a barrier; memory must be the same after each.
    """

    sanitize: bool = True
    step_limit: int = 1_000_000_000
    lanes_per_wave: int = 32768
    shared_bytes_per_wave: int = 8 << 20  # the sanitizer keeps 1 to 21 bytes for each
    fuel: int = 4096
    tensor_core_sm: int = 0
    resident_blocks: int = 0
    fill: int = 0
    order: int = 0
    orders: int = 1
