"""What stops compare_commits: one line that says what failed and what to do."""

from __future__ import annotations


class Problem(Exception):
    """`what` failed; `remedy` is what the user can do. str() is one line."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(" ".join(f"{what}; {remedy}".split()))
