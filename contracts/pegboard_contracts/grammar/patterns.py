"""Turn regular expressions (the ECMA subset of JSON schema) into grammar expressions.

Look-around, back-references, word boundaries and flags cannot be a grammar and are
refused by name. Laziness changes nothing about what matches and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from pegboard_contracts.grammar import characters
from pegboard_contracts.grammar.builder import literal
from pegboard_contracts.grammar.characters import Ranges

MAX_REPEAT = 512
_MAX_LENGTH = 4096
_MAX_DEPTH = 32
_CLASSES: dict[str, Ranges] = {
    "d": characters.DIGITS,
    "w": characters.WORD,
    "s": characters.SPACE,
}
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}


class PatternError(ValueError):
    """Say what of a pattern cannot be read or enforced."""


def pattern_expression(pattern: str, *, json: bool, search: bool) -> str:
    """Return the expression of what `pattern` matches.

    With `json` the characters are written as in a JSON string, without its quotes. With
    `search` an end that is not anchored is open, as JSON schema has it; without it the
    whole text must match.

    Raises `PatternError`.
    """
    if len(pattern) > _MAX_LENGTH:
        raise PatternError(f"the pattern is longer than {_MAX_LENGTH} characters")
    return _Parser(pattern, json=json, search=search).whole()


class _Parser:
    def __init__(self, pattern: str, *, json: bool, search: bool) -> None:
        self._text = pattern
        self._at = 0
        self._json = json
        self._search = search
        self._depth = 0

    def whole(self) -> str:
        branches = [self._anchored_branch()]
        while self._take("|"):
            branches.append(self._anchored_branch())
        if self._at < len(self._text):
            raise PatternError("a ')' has no opening")
        return " | ".join(branches)

    def _anchored_branch(self) -> str:
        start = bool(self._take("^"))
        while self._take("^"):
            pass
        body = self._branch()
        end = bool(self._take("$"))
        while self._take("$"):
            pass
        if self._at < len(self._text) and self._text[self._at] not in "|)":
            raise PatternError("'$' stands inside the pattern")
        anything = f"{self._set(characters.complement(()))}*"
        before = "" if start or not self._search else anything + " "
        after = "" if end or not self._search else " " + anything
        return f"{before}{body}{after}".strip() or '""'

    def _alternatives(self) -> str:
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        if len(branches) == 1:
            return branches[0] or '""'
        return " | ".join(branch or '""' for branch in branches)

    def _branch(self) -> str:
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._text[self._at] == "$":
                if self._depth:
                    raise PatternError("'$' stands inside a group")
                break
            parts.append(self._repeated(self._atom()))
        return " ".join(parts)

    def _atom(self) -> str:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._set(self._class())
        if char == ".":
            return self._set(characters.complement(characters.LINE_ENDS))
        if char == "\\":
            return self._set(self._escape(self._set_escapes))
        if char == "^":
            raise PatternError("'^' stands inside the pattern")
        if char in "*+?{":
            raise PatternError(f"'{char}' repeats nothing")
        return self._set(((ord(char), ord(char)),))

    def _group(self) -> str:
        if self._take("?"):
            if self._take("<"):
                if self._peek() in {"=", "!"}:
                    raise PatternError("look-behind cannot be enforced")
                self._until(">")
            elif not self._take(":"):
                raise PatternError("look-ahead and flags cannot be enforced")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError(f"groups nest deeper than {_MAX_DEPTH}")
        body = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise PatternError("a '(' is never closed")
        return f"({body})"

    def _repeated(self, atom: str) -> str:
        suffix = ""
        char = self._peek()
        if char and char in "*+?":
            self._at += 1
            suffix = char
        elif char == "{":
            suffix = self._counts()
        if suffix:
            self._take("?")
            if self._peek() in {"*", "+", "{"}:
                raise PatternError("a repetition is repeated")
        return atom + suffix

    def _counts(self) -> str:
        self._at += 1
        first, comma, second = self._until("}").partition(",")
        if not first.isdigit() or (second and not second.isdigit()):
            raise PatternError("a '{' is not a repetition; write '\\{' for the character")
        low, high = int(first), int(second) if second else None
        if max(low, high or 0) > MAX_REPEAT:
            raise PatternError(f"more than {MAX_REPEAT} repetitions cannot be enforced")
        if high is not None and low > high:
            raise PatternError("a repetition has its bounds the wrong way round")
        if not comma:
            return f"{{{low}}}"
        return f"{{{low},}}" if high is None else f"{{{low},{high}}}"

    def _class(self) -> Ranges:
        negated = bool(self._take("^"))
        members: list[Ranges] = []
        while not self._take("]"):
            low = self._member()
            dash = self._text[self._at : self._at + 1] == "-"
            if dash and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                low = _span(low, self._member())
            members.append(low)
        ranges = characters.union(*members)
        return characters.complement(ranges) if negated else ranges

    def _member(self) -> Ranges:
        char = self._next()
        if char == "\\":
            return self._escape(self._class_escapes)
        return ((ord(char), ord(char)),)

    def _escape(self, special: Callable[[str], Ranges | None]) -> Ranges:
        char = self._next()
        known = special(char)
        if known is not None:
            return known
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return characters.complement(ranges) if char.isupper() else ranges
        if char in _CONTROLS:
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char in {"x", "u"}:
            return self._code_point(char)
        if char.isalnum():
            raise PatternError(f"'\\{char}' cannot be enforced")
        return ((ord(char), ord(char)),)

    def _set_escapes(self, char: str) -> Ranges | None:
        if char in {"b", "B"}:
            raise PatternError("word boundaries cannot be enforced")
        return None

    def _class_escapes(self, char: str) -> Ranges | None:
        return ((0x08, 0x08),) if char == "b" else None

    def _code_point(self, kind: str) -> Ranges:
        if kind == "u" and self._take("{"):
            digits = self._until("}")
        else:
            width = 2 if kind == "x" else 4
            digits = self._text[self._at : self._at + width]
            self._at += width
        try:
            code = int(digits, 16)
        except ValueError:
            raise PatternError(f"'\\{kind}' is not followed by a code point") from None
        if code > characters.LAST:
            raise PatternError("a code point is too large")
        return ((code, code),)

    def _set(self, ranges: Ranges) -> str:
        if not ranges:
            raise PatternError("a class matches nothing")
        if self._json:
            written = characters.json_expression(ranges)
            if written is None:
                raise PatternError("a class holds only characters that JSON text cannot hold")
            return written
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return literal(chr(ranges[0][0]))
        return characters.expression(ranges)

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise PatternError(f"a '{end}' is missing")
        text = self._text[self._at : stop]
        self._at = stop + 1
        return text

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> bool:
        if self._peek() == char:
            self._at += 1
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("the pattern ends in the middle")
        self._at += 1
        return self._text[self._at - 1]


def _span(low: Ranges, high: Ranges) -> Ranges:
    single = all(len(ranges) == 1 and ranges[0][0] == ranges[0][1] for ranges in (low, high))
    if not single:
        raise PatternError("a range in a class has a class as its end")
    if low[0][0] > high[0][0]:
        raise PatternError("a range in a class is the wrong way round")
    return ((low[0][0], high[0][0]),)
