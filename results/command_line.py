"""The command line of a program in Python: wrong usage is one line, and so is an empty word.

Usage:  options = OneLineParser(prog="history.py", ...).parse_args()

Caveats: an empty word is never a value here. A shell makes one of a variable that is not set, and
`Path("")` is the current folder, which nobody named. core/command_line.h does the same in C++.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn


def empty_word(words: Sequence[str]) -> str | None:
    """What to call the first word that is empty, or that is an option with nothing behind the =."""
    for i, word in enumerate(words):
        if not word:
            of_option = i > 0 and words[i - 1].startswith("--") and words[i - 1] != "--"
            return words[i - 1] if of_option else f"argument {i + 1}"
        if word.startswith("--") and word.endswith("="):
            return word[:-1]
    return None


class OneLineParser(argparse.ArgumentParser):
    """Wrong usage is one line and exit code 2."""

    def parse_known_args(self, args=None, namespace=None):
        empty = empty_word(sys.argv[1:] if args is None else args)
        if empty:
            self.error(f"{empty} is empty; a variable of the command may not be set")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")
