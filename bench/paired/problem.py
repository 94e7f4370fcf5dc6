"""What stops compare_commits: one line that says what failed and what to do."""

from __future__ import annotations


class Problem(Exception):
    """`what` failed; `remedy` is what the user can do. str() is one line, in which a question mark
    stands for what a terminal would act on."""

    def __init__(self, what: str, remedy: str) -> None:
        text = " ".join(f"{what}; {remedy}".split())
        super().__init__("".join(c if c.isprintable() else "?" for c in text))
