"""One line of the preflight: what was looked at, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, STOP = "ok", "warning", "stop"


@dataclass(frozen=True)
class Finding:
    """`level` is OK, WARNING (the figures may suffer) or STOP (the run would fail or mislead)."""

    level: str
    check: str
    found: str
    advice: str = ""

    def line(self) -> str:
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.level:<8}{self.check:<14}{self.found}{advice}"


def ok(check: str, found: str) -> Finding:
    return Finding(OK, check, found)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(WARNING, check, found, advice)


def stop(check: str, found: str, advice: str) -> Finding:
    return Finding(STOP, check, found, advice)


def mebibytes(size: int) -> str:
    """Whole MiB, or tenths of GiB from 10 GiB on."""
    if size >= 10 << 30:
        tenths = size * 10 >> 30
        return f"{tenths // 10}.{tenths % 10} GiB"
    return f"{size >> 20} MiB"
