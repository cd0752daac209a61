"""The CPU through OpenVINO GenAI: GGUF files and folders of OpenVINO IR.

Answers of all requests are generated together, one token each a step (continuous
batching). Precision: 16-bit models run in bf16 where the processor has it, compressed
ones in f32, which was measured to be faster.
"""

from __future__ import annotations

from pegboard_backends._openvino.text_backend import TextBackend


class OpenVinoCpu(TextBackend):
    """Serve text models on the CPU."""

    summary = "Text models (GGUF, OpenVINO IR) on the CPU through OpenVINO GenAI"
    families = ("CPU",)


plugin = OpenVinoCpu
