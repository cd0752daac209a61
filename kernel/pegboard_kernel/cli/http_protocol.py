"""HTTP/1.1 on a connection: uvicorn's own, with our envelope for what cannot be parsed."""

from __future__ import annotations

import secrets

from pegboard_contracts.errors import invalid_request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class HttpProtocol(HttpToolsProtocol):
    """Answer bytes that are no HTTP as every other fault: no middleware ever sees them."""

    def send_400_response(self, msg: str) -> None:
        """Send a 400 in the envelope, with an id, and close the connection; `msg` is uvicorn's."""
        del msg
        error = invalid_request(
            "This is no HTTP/1.1 request: its method, its headers or its framing is malformed.",
            code="invalid_http",
        )
        body = error.envelope()
        head = (
            "HTTP/1.1 400 Bad Request\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            f"x-request-id: req-{secrets.token_hex(12)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
