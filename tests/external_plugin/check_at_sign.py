"""The laws, on answers with calls: `pytest check_at_sign.py` beside an installed plugin."""

from pegboard_contracts.testing.formats import ToolFormatLaws, Transcript
from pegboard_plugin_sample.at_sign import AtSign


class TestAtSign(ToolFormatLaws):
    plugin = AtSign
    templates = ("Write calls as @call {...} @end",)
    transcripts = (
        Transcript(
            '@call {"name": "weather", "arguments": {"city": "Oslo", "days": 3}} @end',
            calls=(("weather", {"city": "Oslo", "days": 3}),),
        ),
        Transcript("Write to me@call.example", text="Write to me@call.example"),
    )
