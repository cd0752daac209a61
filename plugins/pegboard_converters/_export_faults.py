"""What users are told of an export that failed: never what a library printed."""

from __future__ import annotations

import re

from pegboard_contracts.errors import ApiError

_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"`,;:()<>]+)")
_SECRET = re.compile(r"\b(?:hf_|sk-|api_|gh[ps]_)[A-Za-z0-9_-]{6,}")
_LONGEST_LINE = 300

_TEXTS = {
    "remote_code": (
        409,
        "remote_code_required",
        (
            "This model needs Python code of its own repository. Read that code, then set "
            "trust_remote_code to true in the model's catalogue entry."
        ),
    ),
    "gated": (
        409,
        "access_denied",
        "The hub denies access to a part of this model; accept its terms and set a token.",
    ),
    "disk_full": (507, "disk_full", "The disk is full; free some space and convert again."),
    "out_of_memory": (
        507,
        "out_of_memory",
        (
            "The conversion needs more memory than there is; close other programs, convert a "
            "smaller model, or get one that is converted already."
        ),
    ),
    "task_unsupported": (
        400,
        "unsupported_model",
        (
            "Models of this architecture cannot be converted for the backend of this entry; "
            "correct its 'backend'."
        ),
    ),
    "architecture_unknown": (
        400,
        "unsupported_model",
        (
            "The converter does not know the architecture of this model; try a newer converter or "
            "get a model that is converted already."
        ),
    ),
    "version": (
        409,
        "unsupported_model",
        "The converter takes this architecture with another version of transformers only.",
    ),
    "config_broken": (
        400,
        "invalid_model_file",
        "The model's config.json is broken; download it again.",
    ),
    "weights_missing": (
        400,
        "invalid_model_file",
        "The model's weights are missing or broken; download it again.",
    ),
    "tokenizer_missing": (
        400,
        "tokenizer_missing",
        "The model has no usable tokenizer; add its tokenizer.json and tokenizer_config.json.",
    ),
    "tokenizer_unknown": (
        400,
        "tokenizer_unsupported",
        "The tokenizer of this model cannot be converted; without it the model cannot be served.",
    ),
    "torchvision": (
        501,
        "converter_not_installed",
        (
            "The torchvision of the converter does not fit its torch: install both from the same "
            "build, or run `pip uninstall torchvision`, which text models do without."
        ),
    ),
    "killed": (
        507,
        "out_of_memory",
        (
            "The system ended the conversion, most likely for want of memory; close other programs "
            "or convert a smaller model."
        ),
    ),
}


def fault_of(word: str, detail: str = "") -> ApiError:
    """Make the error of a word that the export told."""
    if word == "group_size":
        message = (
            f"A matrix of this model has {detail} channels, which 'group_size' does not divide; "
            "leave it out, or try 64, 32 or -1 (one group a channel)."
        )
        return ApiError(400, message, param="group_size", code="invalid_group_size")
    if word == "incomplete":
        message = f"The converter left out {detail}; the server's log has its last words."
        return ApiError(500, message, code="conversion_incomplete")
    if word == "module_missing":
        return not_installed([detail] if detail else ["a package"])
    if word in _TEXTS:
        status, code, message = _TEXTS[word]
        return ApiError(status, message, code=code)
    message = "The conversion failed; the server's log has the converter's last words."
    return ApiError(500, message, code="conversion_failed")


def not_installed(missing: list[str]) -> ApiError:
    """Make the 501 that says how a converter is installed."""
    message = (
        f"Converting needs packages that are not installed ({', '.join(missing)}). Run "
        "`pip install torch` in the build that suits this machine, then `pip install "
        "'pegboard[convert]'`; or name an interpreter that has them in the setting "
        "plugins.optimum_intel.python."
    )
    return ApiError(501, message, code="converter_not_installed")


def without_private(line: str) -> str:
    """Return a library's line for the log, without paths and what looks like a token."""
    return _SECRET.sub("<secret>", _PATH.sub("<path>", line))[:_LONGEST_LINE]
