"""Text of other origin for a terminal: what it would obey is shown instead."""

from __future__ import annotations

KEPT = "\n\t"


def visible(text: str, kept: str = KEPT) -> str:
    """Control characters, and all others that cannot be printed, one for one as signs; `kept` ones stay."""
    if text.translate(dict.fromkeys(map(ord, kept))).isprintable():
        return text
    return "".join(each if each.isprintable() or each in kept else sign(each) for each in text)


def sign(character: str) -> str:
    """Unicode has pictures of the ASCII control characters."""
    number = ord(character)
    return (
        chr(0x2421 if number == 0x7F else 0x2400 + number)
        if number < 0x20 or number == 0x7F
        else "\N{REPLACEMENT CHARACTER}"
    )


def brief(text: str, most: int = 400) -> str:
    """Enough of a text to know it by."""
    return text if len(text) <= most else text[:most] + "…"
