"""Twenty more sets of tools, as agents and assistants bring them."""

from __future__ import annotations

from pegboard_contracts.conversation import Tool

from tests.structured_outputs.tool_sets import (
    FLAG,
    NUMBER,
    WHOLE,
    WORDS,
    listed,
    one_of,
    text,
    tool,
)

RUN = tool(
    "run_shell",
    "Runs a shell command and returns its output.",
    "command",
    command=text("The command to run."),
    timeout={**WHOLE, "minimum": 1, "maximum": 600},
    workdir=text("Where to run it."),
)
READ = tool(
    "read_file",
    "Reads a file from disk.",
    "path",
    path=text("Absolute path of the file."),
    offset={**WHOLE, "minimum": 0},
    limit={**WHOLE, "minimum": 1},
)
WRITE = tool(
    "write_file",
    "Writes a file.",
    path=text("Path of the file."),
    content=text("The content to write to the file."),
)
EDIT = tool(
    "edit_file",
    "Replaces text in a file.",
    "file_path",
    "old_string",
    "new_string",
    file_path=text(),
    old_string=text("The text to replace."),
    new_string=text("The text to put in its place."),
    replace_all=FLAG,
)
GREP = tool(
    "grep",
    "Searches files with a regular expression.",
    "pattern",
    pattern=text("The regular expression."),
    glob=text("Which files, such as *.py."),
    output_mode=one_of("content", "files_with_matches", "count"),
)
SQL = tool(
    "run_query",
    "Executes a SQL query on the warehouse.",
    "sql",
    sql=text("The SQL statement."),
    params=WORDS,
    dry_run=FLAG,
)
EVENT = tool(
    "create_event",
    "Creates an event in the calendar.",
    "title",
    "start",
    "end",
    title=text("Title of the event."),
    start=text("ISO 8601 start.", format="date-time"),
    end=text("ISO 8601 end.", format="date-time"),
    attendees={"type": "array", "items": text(format="email")},
    reminder={
        "type": "object",
        "properties": {"minutes": WHOLE, "method": one_of("popup", "email")},
        "required": ["minutes", "method"],
    },
)
FREE = tool("find_free_time", "Finds free time.", day=text(format="date"), hours=NUMBER)
EMAIL = tool(
    "send_email",
    "Sends an e-mail.",
    "to",
    "subject",
    "body",
    to=listed(text(format="email"), 3),
    subject=text("Subject line."),
    body=text("Body of the message."),
    priority=one_of("low", "normal", "high"),
)
BROWSE = tool("open_page", "Opens a web page.", url=text("Address.", format="uri"))
CLICK = tool(
    "click", "Clicks an element.", selector=text("CSS selector."), button=one_of("left", "right")
)
SCREENSHOT = Tool(name="take_screenshot", description="Takes a screenshot.", parameters=None)
PAYMENT = tool(
    "create_payment",
    "Creates a payment.",
    amount={**NUMBER, "minimum": 0.01, "maximum": 10000},
    currency=one_of("EUR", "USD", "JPY"),
    recipient={
        "type": "object",
        "properties": {
            "name": text(minLength=1, maxLength=40),
            "account": text(pattern="^[A-Z]{2}[0-9]{10}$"),
            "address": {
                "type": "object",
                "properties": {"street": text(), "city": text(), "zip": text(pattern="^[0-9]{5}$")},
                "required": ["city", "zip"],
            },
        },
        "required": ["name", "account", "address"],
        "additionalProperties": False,
    },
)
TICKET = Tool(
    name="create_issue",
    description="Opens an issue in the tracker.",
    parameters={
        "type": "object",
        "properties": {
            "title": text("Short title."),
            "description": text("What is wrong, in markdown."),
            "labels": {**WORDS, "maxItems": 3, "uniqueItems": True},
            "assignee": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["title", "description"],
    },
)
TRANSLATE = tool(
    "translate", "Translates a text.", text=text("The text."), target=one_of("de", "fr", "日本語")
)
PYTHON = tool("run_python", "Runs Python code.", code=text("Python source code."))
PLAN = tool(
    "update_plan",
    "Updates the plan.",
    "steps",
    steps=listed(
        {
            "type": "object",
            "properties": {
                "step": text(),
                "status": one_of("pending", "in_progress", "completed"),
            },
            "required": ["step", "status"],
            "additionalProperties": False,
        },
        4,
    ),
    explanation=text(),
)
SEARCH_WEB = tool(
    "search_web",
    "Searches the web.",
    "query",
    query=text("What to search for."),
    recency_days={"type": ["integer", "null"]},
    domains=WORDS,
)
THINK = tool("think", "Notes a thought.", thought=text("Your thought."))
FINISH = tool("finish", "Ends the task.", summary=text("What was done."), success=FLAG)
PARTS = tool(
    "set_config",
    "Sets configuration values.",
    config={"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
)
CHAT = tool(
    "отправить_сообщение",
    "Отправляет сообщение в чат.",
    кому=text("Имя получателя"),
    текст=text("Текст сообщения"),
    срочно=FLAG,
)
FORM = tool(
    "fill_form",
    "Fills a form in.",
    first_name=text(),
    last_name=text(),
    phone=text(pattern=r"^\+[0-9]{6,14}$"),
    age={**WHOLE, "minimum": 18, "maximum": 120},
    colors={"type": "array", "items": one_of("red", "green", "blue"), "maxItems": 3},
    newsletter=FLAG,
)

AGENT_TOOL_SETS: dict[str, tuple[Tool, ...]] = {
    "shell": (RUN,),
    "coding agent": (READ, WRITE, EDIT, GREP, RUN),
    "write file": (WRITE,),
    "edit file": (EDIT,),
    "grep": (GREP, READ),
    "warehouse": (SQL,),
    "calendar": (EVENT, FREE),
    "e-mail": (EMAIL,),
    "browser": (BROWSE, CLICK, SCREENSHOT),
    "screenshot": (SCREENSHOT,),
    "payment": (PAYMENT,),
    "tracker": (TICKET,),
    "translation": (TRANSLATE,),
    "python": (PYTHON,),
    "plan": (PLAN, FINISH),
    "web": (SEARCH_WEB, THINK),
    "configuration": (PARTS,),
    "cyrillic": (CHAT,),
    "form": (FORM,),
    "finish": (FINISH, THINK),
}
AGENT_QUESTIONS = (
    "Please take care of the next thing on my list.",
    "Write a hello world program to /tmp/hello.py and tell ann@example.org about it.",
)
