"""Read calls that a model writes as `@call {"name": "peg", "arguments": {}} @end`."""

from collections.abc import Sequence

from pegboard_contracts.calls import CallReader, Outcome
from pegboard_contracts.conversation import Tool
from pegboard_contracts.formats import CallIds, ToolFormat
from pegboard_contracts.scanning import Markers, Wait


class _Reader(CallReader):
    def program(self) -> Wait[None]:
        while (yield from self.until(Markers("@call"), self.say)):
            self.hold("@call")
            yield from self.blank()
            if (yield from self.json_calls(marked=True)) is Outcome.CALLED:
                yield from self.closing("@end")


class AtSign(ToolFormat):
    """Read calls between `@call` and `@end`."""

    summary = "calls as JSON between @call and @end"
    opening_markers = ("@call",)

    def matches_template(self, template: str) -> bool:
        return "@call" in template

    def reader(self, tools: Sequence[Tool], new_id: CallIds) -> _Reader:
        return _Reader(tools, new_id)


plugin = AtSign
