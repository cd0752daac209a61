"""Checks of every profile: health, keys, errors, devices, models, contexts, loading."""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import quote

from tools.contract.api import (
    FaultError,
    Json,
    Server,
    SkipError,
    expect,
    keys_of,
    unknown_id,
    wait_until,
)

_ENTRY = {
    "id",
    "name",
    "status",
    "is_loaded",
    "is_loading",
    "device",
    "error",
    "progress",
    "can_cancel",
    "backend",
    "source_model",
    "weight_format",
    "recommended_device",
    "max_context_len",
    "max_output_tokens",
    "supports_vision",
}
_CONTEXT = {
    "configured_context_tokens",
    "recommended_context_tokens",
    "model_architecture_limit_tokens",
    "minimum_context_tokens",
    "maximum_context_tokens",
    "trial",
    "loaded",
    "applies",
    "configurable",
}
_CANCEL_CODES = {
    "no_active_operation",
    "stale_operation",
    "native_load_in_progress",
    "not_cancellable",
    "task_finished",
    "operation_replaced",
    "cancellation_incomplete",
}
_SECRET = re.compile(rb"\bhf_[A-Za-z0-9]{8,}")


def health(server: Server) -> str:
    """Check the probes, which need no key from this machine."""
    shown = server.get("/health")
    expect(shown.get("status") in {"ok", "busy"}, "/health: the status is neither ok nor busy")
    expect(server.get("/health/live").get("status") == "ok", "/health/live: the status is not ok")
    ready = server.ask("GET", "/health/ready")
    expect(ready.status in {200, 503}, f"/health/ready: {ready.status}, not 200 or 503")
    mock = server.get("/v1/models/status").get("device", {}).get("mock")
    if server.options.expect is not None:
        expect(mock is (server.options.expect == "mock"), "what is loaded is not as expected")
    return "models are scripted" if mock else "models are real, or none is loaded"


def keys(server: Server) -> str:
    """Check that nothing is told without the key."""
    if server.key is None:
        raise SkipError("no --api-key")
    for wrong in (None, "Bearer wrong-" + unknown_id(), "Basic x"):
        answer = server.ask("GET", "/v1/models", headers={"authorization": wrong})
        expect(answer.status == 401, f"GET /v1/models without the key: {answer.status}, not 401")
        expect("www-authenticate" in answer.headers, "a 401 names no scheme")
        expect("data" not in answer.json(), "a 401 lists models")
    server.get("/v1/models")
    return "401 without it, 200 with it"


def errors(server: Server) -> str:
    """Check the envelope, the ids of requests, and that nothing is echoed."""
    path, mark = "/v1/chat/completions", unknown_id()
    body = {"model": mark, "messages": [{"role": "user", "content": "x"}]}
    error = server.refused("POST", path, {404}, body)
    expect(error["code"] == "model_not_found", "an unknown model has another code")
    server.refused("POST", path, {400, 422}, b"{")
    server.refused("POST", path, {400, 422}, b"\xff\xfe")
    server.refused("POST", "/v1/models/load", {400, 422}, {"model": 1})
    server.refused("POST", "/v1/models/load", {400, 422}, {"model": "x", mark: 1})
    secret = "secret-" + unknown_id()
    answer = server.ask("POST", "/v1/models/load", {"model": [secret]})
    expect(secret.encode() not in answer.body, "a refusal repeats what was sent")
    for sent, kept in ((mark, True), ("a b", False), ("x" * 129, False)):
        for asked in ("/v1/models", f"/v1/models/{mark}"):
            answer = server.ask("GET", asked, headers={"x-request-id": sent})
            given = answer.headers.get("x-request-id")
            expect(given is not None, f"GET {asked}: no X-Request-ID")
            expect((given == sent) is kept, "X-Request-ID: a safe one is kept, another is not")
    return "one envelope, ids kept when safe"


def devices(server: Server) -> str:
    """Check the list of devices."""
    shown = server.get("/v1/devices")
    keys_of(shown, {"default_device", "suggestions"}, "/v1/devices")
    listed = [device.get("name") for device in _rows(shown, "devices")]
    wanted = server.options.device
    mock = server.get("/v1/models/status").get("device", {}).get("mock")
    if wanted is not None and not mock:
        family = wanted.partition(":")[2].partition(",")[0] or wanted
        known = any(str(name).partition(".")[0] == family.partition(".")[0] for name in listed)
        expect(known or wanted == "AUTO", f"/v1/devices does not list {wanted}")
    return f"{len(listed)} listed"


def catalogue(server: Server) -> str:
    """Check the list of models, one of them, and what is not there."""
    shown = server.get("/v1/models")
    expect(shown.get("object") == "list", "/v1/models: 'object' is not 'list'")
    models = {str(model.get("id")): model for model in shown.get("data", [])}
    for model in models.values():
        keys_of(model, {"id", "object", "created", "owned_by", "status"}, "a model of the list")
        expect(model["object"] == "model", "/v1/models: a model's 'object' is not 'model'")
    again = {str(model.get("id")): model for model in server.get("/v1/models")["data"]}
    same = all(model["created"] == again[name]["created"] for name, model in models.items())
    expect(same, "/v1/models: 'created' differs from question to question")
    for name in filter(None, (server.options.model, server.options.embedding_model)):
        one = server.get(f"/v1/models/{quote(name, safe='')}")
        expect(one.get("id") in models, f"the list of models lacks '{name}'")
    for path in (unknown_id(), "..%2F" + unknown_id()):
        error = server.refused("GET", f"/v1/models/{path}", {404})
        expect(error["code"] == "model_not_found", "an unknown model has another code")
    return f"{len(models)} models"


def status(server: Server) -> str:
    """Check the snapshot that native clients read."""
    shown = server.get("/v1/models/status")
    expect(shown.get("schema_version") == 1, "/v1/models/status: schema_version is not 1")
    models = shown.get("models", {})
    keys_of(models, {"loaded", "count", "loading_count", "available"}, "/v1/models/status")
    for entry in models["available"]:
        where = "an entry of /v1/models/status"
        keys_of(entry, _ENTRY, where)
        keys_of(entry["progress"], {"phase", "percent", "operation_id"}, f"the progress of {where}")
        percent = entry["progress"]["percent"]
        fits = percent is None or (type(percent) in {int, float} and 0 <= percent <= 100)
        expect(fits, f"the percent of {where} is not null or 0 to 100")
        for name in ("is_loaded", "is_loading", "can_cancel"):
            expect(isinstance(entry[name], bool), f"'{name}' of {where} is no boolean")
    system = server.get("/v1/system/status")
    keys_of(system, {"models", "metrics", "events"}, "/v1/system/status")
    expect("per_model" in system["metrics"], "/v1/system/status: no metrics.per_model")
    expect("available" in system["models"], "/v1/system/status: no models.available")
    return f"{len(models['available'])} entries"


def load(server: Server) -> str:
    """Load the model and wait until it can answer."""
    server.refused("POST", "/v1/models/load", {404}, {"model": unknown_id()})
    server.refused("POST", "/v1/models/load", {400}, {"model": server.model, "device": "GPU.x"})
    load_model(server, server.model, server.options.device)
    error = server.refused(
        "POST", "/v1/models/cancel", {409}, {"model": server.model, "operation_id": "load-0"}
    )
    expect(error["code"] in _CANCEL_CODES, "a cancel of nothing has another code")
    return f"'{server.model}' on {entry_of(server, server.model)['device']}"


def contexts(server: Server) -> str:
    """Check what contexts are told, and that no change slips through."""
    listed = server.get("/v1/models/contexts")
    entries = _rows(listed, "models")
    known = {entry["id"] for entry in server.get("/v1/models/status")["models"]["available"]}
    expect(len(entries) == len(known), "/v1/models/contexts does not list every model")
    for entry in entries:
        keys_of(entry, _CONTEXT, "an entry of /v1/models/contexts")
        expect(entry["applies"] in {"now", "next-load"}, "'applies' is neither now nor next-load")
    path = f"/v1/models/context?model={quote(server.model, safe='')}"
    shown = server.get(path)
    keys_of(shown, _CONTEXT | {"presets", "candidates"}, "/v1/models/context")
    server.refused("GET", f"/v1/models/context?model={unknown_id()}", {404})
    now = shown["configured_context_tokens"]
    expect(type(now) is int, "the configured context is no integer")
    for value in (str(now), float(now), True):
        _no_change(server, value, now, {400, 422})
    _no_change(server, shown["maximum_context_tokens"] + 1, now, {400, 422})
    _no_change(server, now, now + 1, {409})
    after = server.get(path)["configured_context_tokens"]
    expect(after == now, "a refused change of a context has an effect")
    return f"{now} tokens"


def account(server: Server) -> str:
    """Check that the hub's account shows no token and that nothing hangs without a network."""
    answer = server.ask("GET", "/v1/huggingface/status")
    expect(answer.status == 200, f"GET /v1/huggingface/status: {answer.status}, not 200")
    keys_of(answer.json(), {"configured", "status", "source"}, "/v1/huggingface/status")
    expect(not _SECRET.search(answer.body), "/v1/huggingface/status shows a token")
    token = "hf_" + "x" * 40
    told = server.ask("POST", "/v1/huggingface/token", {"token": [token]})
    expect(told.status in {400, 422}, f"a token that is no text: {told.status}, not 422")
    expect(token.encode() not in told.body, "a refusal repeats the token")
    server.refused("POST", "/v1/huggingface/preflight", {400}, {"source_model": "bad"})
    return "no token is shown"


def load_model(server: Server, model: str, device: str | None = None) -> None:
    """Ask for a load and wait until the model is loaded where it was asked for."""
    body: Json = {"model": model} | ({} if device is None else {"device": device})
    told = server.post("/v1/models/load", **body)
    keys_of(told, {"status", "message", "model"}, "the answer of /v1/models/load")

    def loaded() -> bool:
        entry = entry_of(server, model)
        error = entry.get("error") or entry.get("switch_error")
        if error and not entry["is_loading"]:
            raise FaultError(f"'{model}' cannot be loaded; its status tells why")
        where = entry.get("requested_device") or entry.get("device")
        there = device is None or str(where).upper() == device.upper()
        return bool(entry["is_loaded"]) and not entry["is_loading"] and there

    wait_until(loaded, server.options.load_timeout, f"'{model}' is not loaded")


def entry_of(server: Server, model: str) -> Json:
    """Return a model's entry of the system status."""
    for entry in server.get("/v1/system/status")["models"]["available"]:
        if model in (entry["id"], *entry.get("aliases", ())):
            return dict(entry)
    raise FaultError(f"'{model}' is not registered")


def choose_model(server: Server) -> str:
    """Return the wanted model, or the first one that generates, a loaded one first."""
    if server.options.model is not None:
        return server.options.model
    entries = server.get("/v1/models/status").get("models", {}).get("available", [])
    chat = [entry for entry in entries if "chat" in entry.get("capabilities", ["chat"])]
    usable = [entry for entry in chat if entry["is_loaded"] or entry.get("is_downloaded", True)]
    if not usable:
        raise FaultError("no model that generates is here; register one, or name it with --model")
    return str(min(usable, key=lambda entry: not entry["is_loaded"])["id"])


def _rows(shown: Json, other: str) -> list[Json]:
    rows = shown.get("data", shown.get(other))
    if not isinstance(rows, list):
        raise FaultError("a list has no 'data'")
    return cast("list[Json]", rows)


def _no_change(server: Server, tokens: object, expected: int, statuses: set[int]) -> None:
    body = {"model": server.model, "context_tokens": tokens, "expected_context_tokens": expected}
    server.refused("POST", "/v1/models/context", statuses, body)
