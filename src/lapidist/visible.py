"""Text from elsewhere, for a terminal: control characters are shown, so the terminal does not obey them."""

from __future__ import annotations

KEPT = "\n\t"
BRIEF = 400  # characters


def visible(text: str) -> str:
    """Replace control characters, and all others that cannot be printed, by one sign each. Line ends
    and tabs stay.
    """
    if text.translate(dict.fromkeys(map(ord, KEPT))).isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in KEPT else sign(character) for character in text
    )


def sign(character: str) -> str:
    """Unicode has pictures of the ASCII control characters."""
    number = ord(character)
    return (
        chr(0x2421 if number == 0x7F else 0x2400 + number)
        if number < 0x20 or number == 0x7F
        else "\N{REPLACEMENT CHARACTER}"
    )


def brief(text: str) -> str:
    """The beginning of a text, enough to recognise it."""
    return text if len(text) <= BRIEF else text[:BRIEF] + "…"
