"""`pegboard chat`: a conversation in the terminal, with a running server or one of its own."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from pegboard_kernel.cli.output import print_json
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.server_client import ServerClient, ServerError, client_for
from pegboard_kernel.cli.setting_flags import SettingFlags, add_client_flags
from pegboard_kernel.settings import Settings

_EXAMPLES = """\
examples:
  pegboard chat
  pegboard chat --model smollm2 --system "Answer in one sentence."
  echo "What is a peg?" | pegboard chat
  pegboard chat --url http://127.0.0.1:9000

Without --url it talks to the server of these settings; when none runs there, it starts one
on a free port and --model says what to load. Reads one question from a pipe. At the prompt:
/reset begins anew, /exit or Ctrl-D leaves, Ctrl-C stops an answer.
exit codes: 0 success, 1 no answer from the server, 2 bad usage or bad settings
"""


_PIPES: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.PIPE,
    "text": True,
    "start_new_session": True,  # Ctrl-C stops an answer, not the server
}


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the flags of a conversation."""
    del arguments
    parser.epilog = _EXAMPLES
    parser.add_argument("--url", help="address of a running server")
    parser.add_argument("--model", help="a model's id; for a server that is started, its source")
    parser.add_argument("--system", help="a system message to begin with")
    parser.add_argument("--max-tokens", type=int, help="limit of each answer")
    parser.add_argument("--temperature", type=float, help="0 always takes the likeliest token")
    flags = add_client_flags(parser)
    parser.set_defaults(run=partial(_run, flags))


def _run(flags: SettingFlags, namespace: argparse.Namespace) -> int:
    settings = flags.settings(namespace)
    try:
        with _server(settings, namespace) as (client, model):
            talk = _Talk(client, model, namespace)
            if sys.stdin.isatty():
                _converse(talk)
            else:
                question = sys.stdin.buffer.read().decode(errors="replace")  # a pipe brings bytes
                _answer_once(talk, question, as_json=namespace.json)
    except ServerError as error:
        print(f"pegboard chat: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def _server(
    settings: Settings, namespace: argparse.Namespace
) -> Generator[tuple[ServerClient, str]]:
    client = client_for(settings, namespace.url)
    if namespace.url or client.is_there():
        yield client, namespace.model or "auto"
        return
    command = [sys.executable, "-m", "pegboard_kernel.cli", "serve", "--port=0", "--json"]
    command += [f"--data-dir={settings.data_dir}", "--host=127.0.0.1", "--log-level=error"]
    command += [f"--catalog={settings.catalog}"] if settings.catalog else []
    command += [f"--config={settings.config}"] if settings.config else []
    command += [f"--model={namespace.model}"] if namespace.model else []
    keys = [key.get_secret_value() for key in settings.api_keys]
    environment = os.environ | ({"PEGBOARD_API_KEYS": json.dumps(keys)} if keys else {})
    print("No server runs yet; starting one ...", file=sys.stderr)
    with subprocess.Popen(command, **_PIPES, env=environment) as process:  # noqa: S603 - ourselves
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise ServerError("the server did not start; its reasons are above")
            yield client_for(settings, json.loads(line)["url"]), "auto"
        finally:
            process.terminate()


class _Talk:
    """Keep the messages of one conversation."""

    def __init__(self, client: ServerClient, model: str, namespace: argparse.Namespace) -> None:
        self._client = client
        self.model = model
        self._options: dict[str, Any] = {"model": model, "stream": True}
        self._options["stream_options"] = {"include_usage": True}
        for name in ("max_tokens", "temperature"):
            if getattr(namespace, name) is not None:
                self._options[name] = getattr(namespace, name)
        self._system = namespace.system
        self.summary: dict[str, Any] = {}
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self._messages: list[dict[str, str]] = []
        if self._system:
            self._messages.append({"role": "system", "content": self._system})

    def ask(self, question: str) -> Iterator[tuple[str, bool]]:
        """Send a question and yield its answer's pieces, each with whether it is reasoning.

        An answer that is broken off is forgotten together with its question.
        """
        turn = {"role": "user", "content": question}
        body = {**self._options, "messages": [*self._messages, turn]}
        answer: list[str] = []
        self.summary = {}
        with contextlib.closing(self._client.stream("/v1/chat/completions", body)) as events:
            for event in events:
                self.summary |= {k: event[k] for k in ("model", "usage") if event.get(k)}
                for choice in event["choices"]:
                    delta = choice["delta"]
                    if choice.get("finish_reason"):
                        self.summary["finish_reason"] = choice["finish_reason"]
                    if delta.get("reasoning_content"):
                        yield delta["reasoning_content"], True
                    if delta.get("content"):
                        answer.append(delta["content"])
                        yield delta["content"], False
        self.summary["content"] = "".join(answer)
        self._messages += [turn, {"role": "assistant", "content": self.summary["content"]}]


def _answer_once(talk: _Talk, question: str, *, as_json: bool) -> None:
    if not question.strip():
        raise ServerError("nothing was asked; pipe a question or run it in a terminal")
    for piece, reasoning in talk.ask(question.strip()):
        if not as_json and not reasoning:
            print(piece, end="", flush=True)
    if as_json:
        print_json(talk.summary)
    else:
        print()


def _converse(talk: _Talk) -> None:
    with contextlib.suppress(ImportError):
        import_module("readline")  # gives `input` its line editing; not on Windows

    print(f"Talking to {talk.model}; /exit leaves, /reset begins anew.")
    while True:
        try:
            question = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if question in ("/exit", "/quit"):
            return
        if question == "/reset":
            talk.reset()
        elif question:
            _print_answer(talk.ask(question))


def _print_answer(pieces: Iterator[tuple[str, bool]]) -> None:
    """Print an answer as it comes, its reasoning dimmed where colours are wanted."""
    dim, plain = ("", "") if os.environ.get("NO_COLOR") else ("\x1b[2m", "\x1b[0m")
    was_reasoning = False
    try:
        for piece, reasoning in pieces:
            if reasoning is not was_reasoning:
                print(dim if reasoning else f"{plain}\n", end="")
                was_reasoning = reasoning
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(" (stopped)", end="")
    except ServerError as error:
        print(f"\n{error}", end="", file=sys.stderr)
    print(plain if was_reasoning else "")
