"""Adapter `builtin`: whatever the installed bitsandbytes does with sharded tensors by itself.

For the day upstream has a fix. What is called is the same as with `none`; what differs is what a
failure means: `builtin` claims that the installed version can do it, so a failure is a failed
check (exit code 1), while for `none` it is a finding.
"""

from __future__ import annotations

from topologies.pytorch.unsupported import require_class


def builtin(optimizer_class: type) -> type:
    """The class itself; Unsupported where it is not one of bitsandbytes'."""
    require_class(optimizer_class)
    return optimizer_class
