"""``--curl``: the requests of a command, as curl commands.

Reads are sent, for what comes next may depend on them; changes are not. What is printed can go into a ticket: the key
stays in the environment, and a body that holds a secret is read from standard input.
"""

from __future__ import annotations

import re
import shlex
import sys
from typing import Final

import click
import msgspec

from mainspring.cli.printing import NotSent
from mainspring.domain.access import DEFAULT_TENANT
from mainspring.domain.errors import Unavailable
from mainspring.rest.routes import BY_NAME, PREFIX, ROUTES
from mainspring.rest.shapes import MeAnswer
from mainspring.sdk.session import Incoming, Outgoing, Send

_KEY: Final = '-H "Authorization: Bearer $MAINSPRING_KEY"'  # in double quotes: the shell puts it in
_ASKED: Final = "# the server was asked what comes before the last request, as that depends on it; nothing was changed"
_UNSAID: Final = (
    """# the value is not printed: curl reads the body from standard input, {"value": "…"}; to make it of a file:\n"""
    """#   jq -Rs '{value: rtrimstr("\\n")}' FILE"""
)
_LEFT_OUT: Final = ("Accept",)
_WHO: Final = f"{PREFIX}{BY_NAME['me.get'].path}"
_NOBODY: Final = msgspec.json.encode(MeAnswer(subject="", tenant=DEFAULT_TENANT, role="", cluster=False, scopes=()))
_HIDING: Final = tuple(
    (route.method, re.compile(re.escape(PREFIX) + re.sub(r"\{\w+\}", "[^/]+", route.path) + "$"))
    for route in ROUTES
    if route.hides
)


class Curl:
    """Prints every request on its way to the server, and lets reads pass."""

    def __init__(self, *, keyed: bool) -> None:
        self._keyed = keyed
        self._out = sys.stdout  # what the command itself says goes elsewhere
        self._printed: list[tuple[str, str, bytes | None]] = []

    def __call__(self, send: Send) -> Send:
        async def printing(request: Outgoing, /) -> Incoming:
            if request.url.endswith(_WHO):  # how a client begins, and part of no command
                try:
                    return await send(request)
                except Unavailable:
                    return Incoming(200, {}, _NOBODY)
            asked = (request.method, request.url, request.body)
            if asked in self._printed:  # it looks again and again, and would for ever
                raise NotSent
            if len(self._printed) == 1:
                click.echo(_ASKED, err=True)
            self._printed.append(asked)
            click.echo(command_for(request, keyed=self._keyed), file=self._out)
            if _hides(request):
                click.echo(_UNSAID, err=True)
            if request.method != "GET":
                raise NotSent
            try:
                return await send(request)
            except Unavailable as error:
                click.echo(f"# there may be more to it: {error}", err=True)
                raise NotSent from None

        return printing


def command_for(request: Outgoing, *, keyed: bool) -> str:
    """Return a request as a command for a POSIX shell.

    >>> print(command_for(Outgoing("GET", "http://[::1]:8080/api/v1/jobs?prefix=a%20b", {}, None), keyed=True))
    curl -g 'http://[::1]:8080/api/v1/jobs?prefix=a%20b' -H "Authorization: Bearer $MAINSPRING_KEY"
    """
    words = ["curl"]
    if any(each in request.url for each in "[]{}"):
        words.append("-g")
    if "%2E" in request.url:
        words.append("--path-as-is")
    if request.method != "GET":
        words += ["-X", request.method]
    words.append(shlex.quote(request.url))
    if keyed:
        words.append(_KEY)
    for name, value in request.headers.items():
        if name not in _LEFT_OUT:
            words += ["-H", shlex.quote(f"{name}: {value}")]
    if _hides(request):
        words += ["--data-binary", "@-"]
    elif request.body is not None:
        words += ["--data-raw", shlex.quote(request.body.decode())]
    return " ".join(words)


def _hides(request: Outgoing) -> bool:
    """Return whether the body holds a secret."""
    path = request.url.partition("?")[0]
    return any(request.method == method and pattern.search(path) for method, pattern in _HIDING)
