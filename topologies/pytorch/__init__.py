"""The real PyTorch FSDP with the real bitsandbytes, measured as the suite measures its own ranks.

optimizer_step.py is the program; adapters/ holds what stands between FSDP's sharded parameters and
an optimizer that was written for plain tensors. docs/upstream.md says what was found with them.
"""
