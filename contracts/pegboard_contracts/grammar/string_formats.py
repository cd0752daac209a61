"""Patterns for the `format`s of JSON schema strings.

Each matches a subset of what its format allows that is always valid: a narrower host
name is still a host name.
"""

from __future__ import annotations

_MONTH_DAY = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_DATE = f"[0-9]{{4}}-{_MONTH_DAY}"
_TIME = (
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LABEL = "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
_HOST = f"{_LABEL}(\\.{_LABEL}){{1,4}}"

ENFORCED: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P([1-9][0-9]{0,3}D(T[1-9][0-9]{0,3}[HMS])?|T[1-9][0-9]{0,3}[HMS])",
    "email": f"[A-Za-z0-9_+-]{{1,32}}(\\.[A-Za-z0-9_+-]{{1,32}}){{0,2}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": f"{_OCTET}(\\.{_OCTET}){{3}}",
    "ipv6": "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": f"https?://{_HOST}(/[A-Za-z0-9._~-]*)*(\\?[A-Za-z0-9._~=&-]*)?",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
}

NOT_ENFORCED = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "uri-reference",
        "uri-template",
    }
)
"""Standard formats without a pattern here; a format that no standard knows is a remark."""
