"""Chat templates: from a conversation to the text a model reads.

`render_prompt` is used inside the preparer child, which holds the time limit.
"""

from pegboard_kernel.templates.literals import LITERAL_MARK
from pegboard_kernel.templates.rendering import render_prompt, supports_tools

__all__ = ["LITERAL_MARK", "render_prompt", "supports_tools"]
