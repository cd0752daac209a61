"""What the phi4 format makes of answers."""

from __future__ import annotations

from pegboard_contracts.conversation import Tool
from pegboard_contracts.testing.formats import ToolFormatLaws, Transcript
from pegboard_tool_formats.phi4 import Phi4

_ADD = Tool(name="add")


class TestPhi4(ToolFormatLaws):
    """The laws, on answers as Phi-4-mini writes them."""

    plugin = Phi4
    templates = ("{{ '<|' + role + '|>' + content + '<|tool|>' + tools + '<|/tool|>' }}",)
    transcripts = (
        Transcript(
            '<|tool_call|>[{"name": "weather", "arguments": {"city": "Oslo"}}]<|/tool_call|>',
            calls=(("weather", {"city": "Oslo"}),),
        ),
        Transcript(
            'functools[{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}, '
            '{"name": "now", "arguments": {}}]',
            calls=(("add", {"a": 1, "b": [2, 3]}), ("now", {})),
        ),
        Transcript(
            'Let me see.<|tool_call|>{"name": "say", "arguments": {"t": "a<|/tool_call|>b"}}'
            "<|/tool_call|> So.",
            text="Let me see. So.",
            calls=(("say", {"t": "a<|/tool_call|>b"}),),
        ),
        Transcript(
            "from functools import partial; functools[0] is functools.wraps",
            text="from functools import partial; functools[0] is functools.wraps",
            tools=(_ADD,),
        ),
        Transcript(
            'functools[{"name": "nobody", "arguments": {}}]',
            text='functools[{"name": "nobody", "arguments": {}}]',
            tools=(_ADD,),
        ),
        Transcript(
            'functools[{"name": "add", "parameters": {"a": 1}}]\nDone.',
            text="\nDone.",
            calls=(("add", {"a": 1}),),
        ),
        Transcript('<|tool_call|>[{"name": "add", "arg', calls=(("add", {}),), complete=False),
    )
