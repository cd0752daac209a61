"""What to do next when a server refuses or is not there, in words of the command line."""

from __future__ import annotations

from pegboard_kernel.cli.server_client import ServerError

_STEPS = {
    "model_not_found": "`pegboard models list` shows the ids",
    "model_not_downloaded": "`pegboard models pull ID` fetches it",
    "model_loaded": "`pegboard models unload ID` frees it",
    "model_busy": "`pegboard models cancel ID` stops what runs",
    "model_loading": "`pegboard models cancel ID` stops it",
    "model_exists": "choose another id (--id for pull), or `pegboard models remove ID`",
    "insufficient_memory": "--force loads it anyway",
    "context_mismatch": "`pegboard models context ID TOKENS` changes it now",
    "hf_token_missing": "`pegboard hub login` stores one",
    "hf_token_invalid": "`pegboard hub login` stores another",
    "stale_operation": "`pegboard models show ID` tells what runs",
}


def advice(error: ServerError, model: str | None = None) -> str:
    """Return the fault as one line with the next step for `model`, when there is one."""
    if error.status == 0:
        return f"{error}. `pegboard serve` starts one; --url or --port say where one runs."
    if error.status == 401:
        return f"{error} Give the key with --api-key or PEGBOARD_API_KEYS."
    step = _STEPS.get(error.code or "")
    if step is None:
        return str(error)
    named = step if model is None else step.replace(" ID", f" {model}")
    return f"{str(error).rstrip('.')}; {named}."
