"""Writing habits that carry no meaning, taken away: what is left is compared as text, read as a number or parsed."""

import re
from functools import lru_cache

__all__ = ["canonical_text", "compact_text"]

FRACTION_COMMAND = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
DELIMITER_SIZE = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|limits)(?![a-zA-Z])")
THIN_SPACE = re.compile(r"\\!\s*")
THOUSANDS_SPACE = re.compile(r"(?<=[0-9])\\, ?(?=[0-9]{3}(?![0-9]))")
SPACING = re.compile(r"(?<!\\)\\[ ,;:]|(?<!\\)~|\\q?quad(?![a-zA-Z])")
WHITESPACE = re.compile(r"\s+")
TEXT_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname) ?\{([^{}]*)\}")
ROMAN_LETTER = re.compile(r"\\(?:mathrm|mathit|text|textit) ?\{ ?([a-zA-Z]) ?\}(?=[\s+\-*/^_)}]|$)")
SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
ROOT_SIGN = re.compile(r"√ ?([0-9]+(?:\.[0-9]+)?|[a-zA-Z])")
PLAIN_FUNCTION = re.compile(
    r"(?<![\\a-zA-Z{])(sqrt|exp|sin|cos|tan|arcsin|arccos|arctan|sinh|cosh|tanh|ln|log)(?= ?\()"
)
PLAIN_PI = re.compile(r"(?<![\\a-zA-Z{])pi(?![a-zA-Z])")
PLAIN_POWER = re.compile(r"\*\* ?(?:([0-9]+)|(?=[({a-zA-Z]))")
PLUS_MINUS = re.compile(r"\+ ?-")
PARENTHESISED_ARGUMENT = re.compile(r"(?P<open>(?:\\sqrt|\^) ?\()|\\.|[()]", re.DOTALL)
ENVIRONMENT = re.compile(r"\\begin ?\{(aligned|align\*?|gathered|split|equation\*?)\}(.*)\\end ?\{\1\}", re.DOTALL)
ROW_END = re.compile(r"\\\\(?: ?\[[^\]]*\])?")
LONE_BACKSLASH = re.compile(r"(?<!\\)\\$")
AROUND_OPERATORS = re.compile(r" ?([-+*/=<>,;:()\[\]{}^_|]) ?")

CACHED_TEXTS = 2048  # a gold is compared with every completion of its group, and each text more than once
MAX_WRAPPERS = 4  # $\text{\textbf{…}}$ is the deepest seen; a bound keeps nested hostile text linear

SYNONYMS = {
    r"\varnothing": r"\emptyset",
    r"\leqslant": r"\le",
    r"\leq": r"\le",
    r"\geqslant": r"\ge",
    r"\geq": r"\ge",
    r"\ne": r"\neq",
    r"\lt": "<",
    r"\gt": ">",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\degree": r"^\circ",
    r"\smallsetminus": r"\setminus",
}
SYNONYM = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(SYNONYMS, key=len, reverse=True)))})(?![a-zA-Z])")

CHARACTERS = {
    "\u2212": "-",
    "\u2013": "-",
    "\ufe63": "-",
    "\uff0d": "-",
    "½": r"\frac{1}{2}",
    "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}",
    "⅙": r"\frac{1}{6}",
    "⅛": r"\frac{1}{8}",
    "π": r"\pi ",
    "∞": r"\infty ",
    "∅": r"\emptyset ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\neq ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "±": r"\pm ",
    "×": r"\times ",
    "÷": r"\div ",
    "°": r"^\circ ",
    "√": r"\sqrt ",
    "。": ".",
}
TRANSLATION = str.maketrans(CHARACTERS)
SUPERSCRIPT_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
WORDS = {"infinity": r"\infty", "-infinity": r"-\infty", "empty set": r"\emptyset"}


@lru_cache(maxsize=CACHED_TEXTS)
def canonical_text(text: str) -> str:
    r"""Drop what is only typography: `$…$` or `\text{…}` around all of it, a final full stop, `\left`, `\dfrac`."""
    text = SUPERSCRIPT.sub(lambda match: f"^{{{match.group().translate(SUPERSCRIPT_DIGITS)}}}", text)
    text = ROOT_SIGN.sub(r"\\sqrt{\1}", text).translate(TRANSLATION)
    text = FRACTION_COMMAND.sub(r"\\frac", text)
    text = DELIMITER_SIZE.sub("", text)
    text = SYNONYM.sub(lambda match: SYNONYMS[match.group()], text)
    text = THOUSANDS_SPACE.sub("{,}", THIN_SPACE.sub("", text))
    text = WHITESPACE.sub(" ", LONE_BACKSLASH.sub("", SPACING.sub(" ", text))).strip()
    for _ in range(MAX_WRAPPERS):
        unwrapped = _unwrap(_without_full_stop(text))
        if unwrapped == text:
            break
        text = unwrapped
    return _as_latex(WORDS.get(text.lower(), text))


def compact_text(text: str) -> str:
    """Drop the spaces that canonical text still has around operators and delimiters."""
    return AROUND_OPERATORS.sub(r"\1", text)


def _as_latex(text: str) -> str:
    """Plain-text mathematics in LaTeX: `sqrt(2)`, `exp(16)`, `2**10`, `pi/2`, `+ -1`."""
    text = ROMAN_LETTER.sub(r"\1", text)
    text = PLAIN_FUNCTION.sub(r"\\\1", text)
    text = PLAIN_PI.sub(r"\\pi ", text)
    text = PLAIN_POWER.sub(lambda match: f"^{{{match[1]}}}" if match[1] else "^", text)
    return _braced_arguments(PLUS_MINUS.sub("-", text)).strip()


def _braced_arguments(text: str) -> str:
    r"""Write `\sqrt(…)` and `^(…)` with braces; a parenthesis that is never closed stays."""
    if PARENTHESISED_ARGUMENT.search(text) is None:
        return text
    pieces = list(text)
    openings: list[int] = []
    for token in PARENTHESISED_ARGUMENT.finditer(text):
        if token["open"]:
            openings.append(token.end() - 1)
        elif token.group() == "(":
            openings.append(-1)
        elif token.group() == ")" and openings:
            opening = openings.pop()
            if opening >= 0:
                pieces[opening], pieces[token.start()] = "{", "}"
    return "".join(pieces)


def _without_full_stop(text: str) -> str:
    """Two dots or more are an ellipsis and say something."""
    return text if text.endswith("..") else text.removesuffix(".").rstrip()


def _unwrap(text: str) -> str:
    for opening, closing in (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        inside = text[len(opening) : -len(closing)]
        if len(text) > 2 and text.startswith(opening) and text.endswith(closing) and opening not in inside:
            return inside.strip()
    if text.startswith("{") and text.endswith("}") and "}" not in text[1:-1]:
        return text[1:-1].strip()
    if match := ENVIRONMENT.fullmatch(text):
        return ", ".join(row for row in ROW_END.split(match[2].replace("&", "").strip()) if row.strip())
    match = TEXT_WRAPPER.fullmatch(text)
    return match.group(1).strip() if match else text
