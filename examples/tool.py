#!/usr/bin/env python3
"""A whole tool of Postern's leader in plain Python 3: it makes a text loud.

    python3 tool.py 127.0.0.1:9202

GET /meta says what it takes and answers, GET /health whether it is ready, POST /invoke does it. It keeps nothing and
changes nothing, so the same call may come twice. One flaw is left in on purpose: of digits it makes a number, which
its own output schema forbids, so that one sees what becomes of an event whose tool breaks its word.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

META = {
    "fqn": "xyz.postern.text.shout@1",
    "type": "offchain",
    "description": "Makes a text loud.",
    "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 1000}},
        "required": ["text"],
        "additionalProperties": False,
    },
    "output_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [
            {"type": "object", "properties": {"ok": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
             "required": ["ok"], "additionalProperties": False},
            {"type": "object", "properties": {"err_empty": {"type": "object"}}, "required": ["err_empty"], "additionalProperties": False},
        ],
    },
}


def shout(text):
    """The answer to a text: one variant."""
    if not text:
        return {"err_empty": {}}
    if text.isdigit():
        return {"ok": {"text": int(text)}}  # the flaw
    return {"ok": {"text": text.upper() + "!"}}


class Tool(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/meta":
            self.answer(200, dict(META, url="http://%s:%d" % self.server.server_address[:2]))
        elif self.path == "/health":
            self.answer(200, {"ready": True})
        else:
            self.answer(404, {"error": "not_found", "details": "want /meta, /health or /invoke"})

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1 << 20))
        if self.path != "/invoke":
            return self.answer(404, {"error": "not_found", "details": "want /meta, /health or /invoke"})
        try:
            text = json.loads(body)["text"]
            if not isinstance(text, str):
                raise TypeError("text is no string")
        except (ValueError, KeyError, TypeError) as e:
            return self.answer(422, {"error": "input_deserialization_error", "details": str(e)})
        self.answer(200, shout(text))

    def answer(self, status, body):
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: python3 tool.py HOST:PORT")
    host, port = sys.argv[1].rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Tool)
    print("listening on %s:%d" % server.server_address[:2], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
