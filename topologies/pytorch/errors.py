"""The errors of the programs on PyTorch, which do not need PyTorch."""

from __future__ import annotations


class CannotRun(Exception):
    """Why a program could not do its job, and what to do: exit code 2."""


class RankLost(CannotRun):
    """A collective failed because a rank does not answer; each rank that is left says so."""


class RanksFailed(CannotRun):
    """What some rank could not do; every rank raises the same."""
