"""Keeps libraries from writing on stderr, which is for a program's own one line. Import it before
PyTorch and bitsandbytes: they read these settings when they are loaded."""

from __future__ import annotations

import logging
import os

# The profiler's library announces itself, and that there is no GPU.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
# bitsandbytes says at import that a package is missing which its optimizers do not need.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
