from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pegboard_contracts.errors import ApiError
from pegboard_model_sources._hub_address import HubAddress, is_file_name, parse_address
from pegboard_model_sources._hub_files import choose_files
from pegboard_model_sources.hub import Hub

TEXTS = ["config.json", "tokenizer.json", "tokenizer_config.json", "merges.txt"]


def test_openvino_files_are_taken_as_they_are() -> None:
    ir = [
        "openvino_model.xml",
        "openvino_model.bin",
        "openvino_tokenizer.xml",
        "openvino_tokenizer.bin",
    ]
    more = ["model.safetensors", "pytorch_model.bin", "README.md", "x.gguf", ".gitattributes"]
    files = choose_files([*ir, *TEXTS, *more])
    assert files.servable
    assert files.file is None
    assert sorted(files.names) == sorted([*ir, *TEXTS])


def test_weights_are_taken_once() -> None:
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    copies = [
        "pytorch_model.bin",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model.bin.index.json",
        "tf_model.h5",
        "flax_model.msgpack",
        "model.fp16.safetensors",
        "consolidated.safetensors",
        "original/consolidated.00.pth",
        "onnx/model.onnx",
        "onnx/config.json",
        "openvino/openvino_model.xml",
        "small.Q4_K_M.gguf",
        "picture.png",
    ]
    kept = [*shards, "model.safetensors.index.json", *TEXTS, "modeling_custom.py", "LICENSE.txt"]
    parts = ["1_Pooling/config.json", "2_Dense/model.safetensors", "modules.json"]
    files = choose_files([*kept, *parts, *copies])
    assert not files.servable
    assert sorted(files.names) == sorted([*kept, *parts])


def test_old_weights_are_taken_where_there_are_no_others() -> None:
    files = choose_files([*TEXTS, "pytorch_model.bin", "training_args.bin", "tf_model.h5"])
    assert sorted(files.names) == sorted([*TEXTS, "pytorch_model.bin"])


@pytest.mark.parametrize(
    ("quantizations", "chosen"),
    [
        (["Q2_K", "Q4_K_M", "Q8_0"], "Q4_K_M"),
        (["Q2_K", "Q8_0", "f16"], "Q8_0"),
        (["Q4_K_S", "q4_0"], "q4_0"),
        (["IQ1_M"], "IQ1_M"),
    ],
)
def test_one_quantization_is_chosen(quantizations: list[str], chosen: str) -> None:
    names = [f"tiny-{word}.gguf" for word in quantizations]
    files = choose_files([*names, "mmproj-tiny-Q4_K_M.gguf", "imatrix.gguf", "README.md"])
    assert files.names == (f"tiny-{chosen}.gguf",)
    assert files.file == f"tiny-{chosen}.gguf"


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["README.md"],
        ["adapter_model.safetensors", "adapter_config.json"],
        ["model.safetensors"],
        ["big-Q4_K_M-00001-of-00002.gguf", "big-Q4_K_M-00002-of-00002.gguf"],
        ["config.json", "adapter_model.safetensors"],
    ],
)
def test_a_repository_without_a_model_is_told(names: list[str]) -> None:
    with pytest.raises(ApiError) as caught:
        choose_files(names)
    assert (caught.value.status, caught.value.code) == (409, "hf_no_model_files")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("owner/repo", HubAddress("owner/repo")),
        ("hf:owner/repo", HubAddress("owner/repo")),
        ("Qwen/Qwen2.5-0.5B-Instruct@v1.0", HubAddress("Qwen/Qwen2.5-0.5B-Instruct", "v1.0")),
        ("o/r@refs/pr/3", HubAddress("o/r", "refs/pr/3")),
        ("o/r#sub/x.Q8_0.gguf", HubAddress("o/r", "main", "sub/x.Q8_0.gguf")),
        ("o/r@abc#x.gguf", HubAddress("o/r", "abc", "x.gguf")),
    ],
)
def test_addresses_are_understood(text: str, address: HubAddress) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "owner",
        "owner/",
        "/repo",
        "a/b/c",
        "a/b@",
        "a/b#",
        "a/b@../../x",
        "a/b@x//y",
        "a/b#../x.gguf",
        "a/b#/x.gguf",
        "a/b#C:\\x.gguf",
        "a/b#nul.gguf",
        "a/b@x y",
        "a--b/c",
        "a/b.git",
        "-a/b",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_address(text)
    assert (caught.value.status, caught.value.code) == (400, "hf_model_id_invalid")


@given(st.text(max_size=40))
def test_a_file_name_stays_below_its_folder(name: str) -> None:
    if is_file_name(name):
        parts = PurePosixPath(name).parts
        assert parts
        assert not {"..", "/", ""} & set(parts)


@pytest.mark.parametrize(
    ("address", "model_id"),
    [
        ("owner/SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct"),
        ("owner/repo@v1", "repo"),
        ("owner/repo@v1#files/tiny.Q8_0.gguf", "tiny.Q8_0"),
        ("owner/con", "model-con"),
    ],
)
def test_ids_come_from_names(address: str, model_id: str) -> None:
    assert Hub().default_id(address) == model_id
