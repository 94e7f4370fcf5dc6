"""When Python may collect garbage: not within what is measured.

with without_collections():
    step()  # FSDP's modules are cycles, whose tensors would be freed in any step
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Collects what there is, and nothing more until the end of the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
