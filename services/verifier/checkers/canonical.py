"""Writing habits that carry no meaning, taken away: what is left is compared as text or read as a number."""

import re

__all__ = ["canonical_text"]

FRACTION_COMMAND = re.compile(r"\\[dt]frac(?![a-zA-Z])")
DELIMITER_SIZE = re.compile(r"\\(?:left|right)(?![a-zA-Z])")
THIN_SPACE = re.compile(r"\\!\s*")
WHITESPACE = re.compile(r"\s+")
TEXT_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")

MAX_WRAPPERS = 4  # $\text{\textbf{…}}$ is the deepest seen; a bound keeps nested hostile text linear

MINUS_SIGNS = {"\u2212": "-", "\u2013": "-", "\ufe63": "-", "\uff0d": "-"}
VULGAR_FRACTIONS = {
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}",
    "⅙": r"\frac{1}{6}",
    "⅛": r"\frac{1}{8}",
}
TRANSLATION = str.maketrans(MINUS_SIGNS | VULGAR_FRACTIONS)


def canonical_text(text: str) -> str:
    r"""Drop what is only typography: `$…$` or `\text{…}` around all of it, a final full stop, `\left`, `\dfrac`."""
    text = text.translate(TRANSLATION)
    text = FRACTION_COMMAND.sub(r"\\frac", text)
    text = DELIMITER_SIZE.sub("", text)
    text = THIN_SPACE.sub("", text)
    text = WHITESPACE.sub(" ", text).strip()
    for _ in range(MAX_WRAPPERS):
        unwrapped = _unwrap(_without_full_stop(text))
        if unwrapped == text:
            break
        text = unwrapped
    return text


def _without_full_stop(text: str) -> str:
    """Two dots or more are an ellipsis and say something."""
    return text if text.endswith("..") else text.removesuffix(".").rstrip()


def _unwrap(text: str) -> str:
    for opening, closing in (("$", "$"), (r"\(", r"\)")):
        inside = text[len(opening) : -len(closing)]
        if len(text) > 2 and text.startswith(opening) and text.endswith(closing) and opening not in inside:
            return inside.strip()
    match = TEXT_WRAPPER.fullmatch(text)
    return match.group(1).strip() if match else text
