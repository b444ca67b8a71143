"""Receivers for tests: mails by aiosmtpd, webhooks verified by standardwebhooks, spans read by the messages that
OpenTelemetry publishes. Arguments: the port.

POST /smtp {"cert", "key", "mode": "tls" or "starttls", "user", "password"} starts a mail server and returns its port.
POST /hook/SECRET receives webhooks signed with the secret. POST /v1/traces receives spans by OTLP. GET /received returns
everything that arrived.
"""

import json
import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from standardwebhooks.webhooks import Webhook

RECEIVED = {"mails": [], "hooks": [], "traces": []}
LOCK = threading.Lock()
SERVERS = []


class Mailbox:
    """Keeps every mail."""

    def __init__(self, mode):
        self.mode = mode

    async def handle_DATA(self, server, session, envelope):
        mail = {
            "to": envelope.rcpt_tos,
            "user": session.auth_data.login.decode() if session.auth_data else None,
            # With TLS from the start, the session does not know that it is encrypted.
            "encrypted": session.ssl is not None or self.mode == "tls",
            "text": envelope.content.decode("utf-8", "replace"),
        }
        with LOCK:
            RECEIVED["mails"].append(mail)
        return "250 OK"


class MailServer(Controller):
    """Demands TLS and a login."""

    def __init__(self, order):
        self.order = order
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(order["cert"], order["key"])
        implicit = self.context if order["mode"] == "tls" else None
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        super().__init__(Mailbox(order["mode"]), hostname="127.0.0.1", port=port, ssl_context=implicit)

    def factory(self):
        return SMTP(
            self.handler,
            authenticator=self.check,
            auth_required=True,
            # With TLS from the start, the library does not know that the connection is encrypted.
            auth_require_tls=self.order["mode"] == "starttls",
            tls_context=self.context if self.order["mode"] == "starttls" else None,
            require_starttls=self.order["mode"] == "starttls",
        )

    def check(self, server, session, envelope, mechanism, data):
        wanted = (self.order["user"].encode(), self.order["password"].encode())
        is_right = isinstance(data, LoginPassword) and (data.login, data.password) == wanted
        return AuthResult(success=is_right, auth_data=data)


def unknown(message):
    """Whether the message has fields that its type does not declare."""
    return len(UnknownFieldSet(message)) > 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=None):
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        with LOCK:
            self.answer(200, RECEIVED)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/smtp":
            server = MailServer(json.loads(body))
            server.start()
            SERVERS.append(server)
            self.answer(200, {"port": server.port})
            return
        if self.path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            spans = [
                (span, MessageToDict(span))
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
            for span, shown in spans:
                # Unknown fields would be mistakes of the sender.
                shown["exact"] = type(span).FromString(span.SerializeToString()) == span and not unknown(span)
            with LOCK:
                RECEIVED["traces"].extend(shown for _, shown in spans)
            self.answer(200, ExportTraceServiceResponse().SerializeToString())
            return
        secret = self.path.removeprefix("/hook/")
        try:
            payload = Webhook(secret).verify(body, {name.lower(): value for name, value in self.headers.items()})
            verified, payload = True, payload if payload is not None else json.loads(body)
        except Exception as error:
            verified, payload = False, str(error)
        with LOCK:
            RECEIVED["hooks"].append({"verified": verified, "payload": payload})
        self.answer(204 if verified else 400)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("the receivers are ready", flush=True)
server.serve_forever()
