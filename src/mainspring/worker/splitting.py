"""Lines: what a task writes, cut where lines end, and where one has become too long to keep."""

from __future__ import annotations

from typing import Final

LONGEST_LINE: Final = 8_192  # bytes
_CUT: Final = "…"


class Lines:
    """Puts the pieces of one stream together into lines. Holds no more than one, however much is written."""

    def __init__(self) -> None:
        self._rest = b""  # no longer than one byte more than a line: enough to know that it was cut

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that this piece completes."""
        *whole, rest = piece.split(b"\n")
        if not whole:
            self._rest = (self._rest + rest)[: LONGEST_LINE + 1]
            return []
        whole[0] = self._rest + whole[0]
        self._rest = rest[: LONGEST_LINE + 1]
        return [_shown(line) for line in whole]

    def end(self) -> list[str]:
        """Return what was left without an end of line, if anything was."""
        rest, self._rest = self._rest, b""
        return [_shown(rest)] if rest else []


def cut(text: str) -> str:
    """Return a text that any stream can carry, no longer than a line may be."""
    return _shown(text[: LONGEST_LINE + 1].encode(errors="replace"))


def _shown(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        return line[:LONGEST_LINE].decode(errors="replace") + _CUT
    return line.removesuffix(b"\r").decode(errors="replace")
