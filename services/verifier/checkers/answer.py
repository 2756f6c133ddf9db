r"""What kind of thing an answer is, read from its text: a scalar, a list, a set, a tuple, a matrix or a union.

A computer-algebra system forgets such differences: to it `(1,2)`, `1,2` and `\{1,2\}` are much the same.
"""

import re
from dataclasses import dataclass, replace

from services.verifier.checkers.canonical import canonical_text
from services.verifier.checkers.rational import parse_rational
from services.verifier.checkers.relation import Interval, solved_relation

__all__ = ["Answer", "read_answer"]

TOKEN = re.compile(
    r"(?P<text>\\(?:text|textrm|mathrm|mbox) ?\{[^{}]*\})|(?P<open>\\\{|\\langle(?![a-z])|[({\[])"
    r"|(?P<close>\\\}|\\rangle(?![a-z])|[)}\]])|(?P<cup>\\cup(?![a-zA-Z]))|(?P<command>\\[a-zA-Z]+|\\.)"
    r"|(?P<separator>[,;])|(?P<word>(?<![a-zA-Z])(?:and|or)(?![a-zA-Z]))",
    re.DOTALL,
)
JOINING_TEXT = re.compile(r"^(\\[a-z]+ ?)\{(.*?)\b(and|or)\b(.*)\}$", re.DOTALL)
NAME = re.compile(
    r"(?P<name>[A-Za-z](?:_ ?\{?[A-Za-z0-9]+\}?)?(?: ?\( ?[A-Za-z] ?\))?|\\(?!in)[a-z]+|\\text ?\{[^{}]*\})"
    r" ?(?:=|\\in(?![a-z]))(?!=)"
)
RELATION = re.compile(r"[=<>]|\\(?:le|ge|neq|approx|equiv|in)(?![a-z])")
MATRIX = re.compile(r"\\begin ?\{([pbB]?matrix)\}(.*)\\end ?\{\1\}", re.DOTALL)
THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
SET_BUILDER = re.compile(r"\||\\mid(?![a-z])|:")

BRACKETS = {"(": ")", "[": "]"}


@dataclass(frozen=True)
class Answer:
    """One answer with its structure.

    Args:
        kind: scalar, list, set, tuple, matrix or union.
        text: canonical, without the name.
        items: of everything but a scalar.
        brackets: of a tuple, which may be an interval: two characters.
        name: what it is the value of, in `x = 5`, or the variable of an inequality.
        relation: an interval that was written as an inequality.
        columns: of a matrix.

    """

    kind: str
    text: str
    items: tuple["Answer", ...] = ()
    brackets: str = ""
    name: str = ""
    relation: bool = False
    columns: int = 0


def read_answer(text: str) -> Answer:
    """Read the structure of an answer; what is not understood is a scalar. Recurses as deep as the text is nested."""
    return _read(canonical_text(text))


def _read(text: str) -> Answer:
    if parse_rational(text) is not None:
        return Answer("scalar", text)  # 10,000 is no list
    parts, words = _split(text)
    if len(parts) < 2:
        return _item(parts[0] if parts else text)
    items = tuple(_item(part) for part in parts)
    if words == {"or"} and all(item.relation for item in items) and len({item.name for item in items}) == 1:
        return _union(text, items, relation=True)
    return Answer("list", text, items)


def _item(text: str) -> Answer:
    named = NAME.match(text)
    if named and not RELATION.search(text, named.end()):
        value = _read_value(text[named.end() :].strip())
        return replace(value, name="".join(named["name"].split()))
    return _read_value(text)


def _read_value(text: str) -> Answer:
    if (intervals := solved_relation(text)) is not None:
        items = tuple(_of_interval(interval) for interval in intervals)
        return items[0] if len(items) == 1 else _union(text, items, relation=True)
    if match := MATRIX.fullmatch(text):
        return _matrix(text, match[2])
    if (enclosed := _enclosed(text)) is not None:
        return enclosed
    operands = _operands_of_cup(text)
    if len(operands) > 1:
        items = tuple(_read_value(operand) for operand in operands)
        if all(item.kind == "tuple" and len(item.items) == 2 for item in items):
            return _union(text, items)
    return Answer("scalar", text)


def _of_interval(interval: Interval) -> Answer:
    ends = (Answer("scalar", interval.low), Answer("scalar", interval.high))
    text = f"{interval.brackets[0]}{interval.low},{interval.high}{interval.brackets[1]}"
    return Answer("tuple", text, ends, interval.brackets, interval.variable, relation=True)


def _union(text: str, items: tuple[Answer, ...], *, relation: bool = False) -> Answer:
    text = r" \cup ".join(item.text for item in items) if relation else text
    return Answer("union", text, items, name=items[0].name, relation=relation)


def _matrix(text: str, body: str) -> Answer:
    rows = [row for row in body.split(r"\\") if row.strip()]
    cells = [[_read_value(cell.strip()) for cell in row.split("&")] for row in rows]
    columns = len(cells[0]) if cells else 0
    if not columns or any(len(row) != columns for row in cells):
        return Answer("scalar", text)
    return Answer("matrix", text, tuple(cell for row in cells for cell in row), columns=columns)


def _enclosed(text: str) -> Answer | None:
    """Read what stands in one pair of delimiters; None where the first does not close at the end."""
    tokens = list(TOKEN.finditer(text))
    if not tokens or not tokens[0]["open"] or tokens[0].start() != 0 or _closing(tokens) != len(text):
        return None
    opening, closing = tokens[0].group(), tokens[-1].group()
    inner = text[tokens[0].end() : tokens[-1].start()].strip()
    parts, _ = _split(inner)
    if opening == r"\{" and closing == r"\}":
        if SET_BUILDER.search(inner):
            return None
        return Answer("set", text, tuple(_item(part) for part in parts))
    if len(parts) == 1 and (opening, closing) in {("(", ")"), ("{", "}")}:
        return _item(parts[0])
    if len(parts) > 1 and (opening, closing) == ("{", "}"):
        return _read(inner)  # braces that only group
    if len(parts) > 1 and (opening, closing) == (r"\langle", r"\rangle"):
        return Answer("tuple", text, tuple(_item(part) for part in parts), "()")
    if len(parts) > 1 and opening in BRACKETS and closing in BRACKETS.values():
        return Answer("tuple", text, tuple(_item(part) for part in parts), opening + closing)
    return None


def _closing(tokens: "list[re.Match[str]]") -> int:
    """Where the delimiter that the first token opens is closed."""
    depth = 0
    for token in tokens:
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth == 0:
                return token.end()
    return -1


def _split(text: str) -> tuple[list[str], set[str]]:
    """Split at commas, semicolons, "and" and "or" outside delimiters; also returns the words met."""
    if ", " in text:  # who writes a space between the items writes none between thousands
        text = THOUSANDS.sub("{,}", text)
    parts, words, piece, at, depth = [], set(), "", 0, 0
    for token in TOKEN.finditer(text):
        depth += 1 if token["open"] else -1 if token["close"] else 0
        if depth < 0:
            return [text], set()
        joining = JOINING_TEXT.match(token["text"]) if token["text"] else None
        if depth or not (token["separator"] or token["word"] or joining):
            continue
        piece += text[at : token.start()]
        rest = ""
        if joining:
            piece += _worded(joining[1], joining[2])
            rest = _worded(joining[1], joining[4])
        words |= {joining[3] if joining else token["word"] or ""} - {""}
        parts.append(piece)
        piece, at = rest, token.end()
    parts.append(piece + text[at:])
    return [part.strip() for part in parts if part.strip()], words


def _worded(command: str, words: str) -> str:
    return f"{command}{{{words}}}" if words.strip() else ""


def _operands_of_cup(text: str) -> list[str]:
    operands, at, depth = [], 0, 0
    for token in TOKEN.finditer(text):
        depth += 1 if token["open"] else -1 if token["close"] else 0
        if token["cup"] and depth == 0:
            operands.append(text[at : token.start()].strip())
            at = token.end()
    return [*operands, text[at:].strip()]
