"""The only door from the text of a file to a terminal.

A tensor's name may hold an escape sequence that clears the screen, a line break that forges a line of the report, or
marks that turn the reading direction around. Here all of them become visible escapes, as Python spells them.
"""

MOST = 2000  # characters of one piece of text; a name of a megabyte is not there to be read

# Invisible, though `str.isprintable` takes them for ordinary letters and marks: fillers, joiners and variation
# selectors (the default-ignorable code points of Unicode 16), and the blank braille pattern.
_INVISIBLE = frozenset(
    map(
        chr,
        (
            0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0,
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)  # fmt: skip


def printable(text: str, *, most: int = MOST) -> str:
    r"""Text that moves no cursor and hides nothing: `\x1b`, `\n`, `\u202e`, and a cut where it is very long.

    Args:
        text: anything, lone surrogates included.
        most: characters kept; of a longer text the middle is left out, and the length is said.
    """
    if len(text) > most:
        head, tail = most * 2 // 3, most // 3
        text = f"{text[:head]}…({len(text):,} characters)…{text[-tail:]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() and character not in _INVISIBLE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
