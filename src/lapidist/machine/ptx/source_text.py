"""The text of a PTX module: positions in it, their lines, and errors that quote these lines."""

from __future__ import annotations

import re
from bisect import bisect_right

from lapidist.machine.faults import PtxError
from lapidist.visible import brief, visible

BLANKS = {ord(blank): " " for blank in "\r\v\f"}
BLANK = re.compile(r"\s+")
COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')
CUDA_FOLDER = "/lapidist/cuda/"


def short_name(path: str) -> str:
    """A source of the project by its place in the CUDA folder, where names repeat; others by file name."""
    path = re.sub(r"\\+", "/", path)  # of Windows, where PTX doubles them
    return path.rpartition(CUDA_FOLDER if CUDA_FOLDER in path else "/")[2]


class SourceText:
    """A module's text with its comments blanked, so that positions and lines stay right."""

    def __init__(self, text: str) -> None:
        text = text.rstrip("\0 \t\r\n")  # strings of C end with NUL
        text = visible(text.translate(BLANKS))  # names of files reach terminals
        self.lines = text.splitlines()
        self.files = {int(number): short_name(path) for number, path in FILE.findall(text)}
        self.text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        self.starts = [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_of(self, position: int) -> int:
        return bisect_right(self.starts, position)

    def error(self, position: int, problem: str) -> PtxError:
        line = self.line_of(position)
        quoted = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        return PtxError(f"PTX line {line}: {problem}: {brief(quoted)!r}")

    def skip_blank(self, position: int) -> int:
        """The position of the next character that is no blank, or the end."""
        blank = BLANK.match(self.text, position)
        return blank.end() if blank else position

    def find(self, token: str, position: int) -> int:
        """The position of the next `token`; an error without one."""
        place = self.text.find(token, position)
        if place < 0:
            raise self.error(position, f"no {token!r} closes this")
        return place

    def matching(self, brace: int) -> int:
        """The position of the brace that closes the one at `brace`."""
        depth = 0
        for match in re.compile(r"[{}]").finditer(self.text, brace):
            depth += 1 if match.group() == "{" else -1
            if depth == 0:
                return match.start()
        raise self.error(brace, "no '}' closes this")
