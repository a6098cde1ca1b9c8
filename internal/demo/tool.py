#!/usr/bin/env python3
"""A tool for Postern in a page of Python, without any module that is not Python's own.

    python3 tool.py 8090

serves two tools below http://127.0.0.1:8090: /shout and /divide, and a third one, /broken, which answers
something else than it promises. Register one with: PUT /tools/dev.script.shout@1 {"url": "http://127.0.0.1:8090/shout"}
"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def variants(**payloads):
    """The output schema: one of these, each an object under its own name."""
    return {"oneOf": [{"type": "object", "required": [name], "properties": {name: schema}, "additionalProperties": False}
                      for name, schema in payloads.items()]}


def shape(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}, "required": list(properties)}


def shout(text):
    return {"ok": {"text": text.upper() + "!"}}


def divide(a, b):
    if b == 0:
        return {"err_by_zero": {"a": a}}
    return {"ok": {"quotient": a / b}}


def broken(text):
    return {"ok": {"length": "as long as it is"}}


TOOLS = {
    "shout": (shout, shape(text="string"), variants(ok=shape(text="string"))),
    "divide": (divide, shape(a="number", b="number"), variants(ok=shape(quotient="number"), err_by_zero=shape(a="number"))),
    "broken": (broken, shape(text="string"), variants(ok=shape(length="integer"))),
}


class Tool(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def asked(self, verb):
        parts = self.path.strip("/").split("/")
        if len(parts) == 2 and parts[1] == verb and parts[0] in TOOLS:
            return parts[0]
        self.answer(404, {"error": "not_found", "details": "no such tool"})

    def do_GET(self):
        if self.path.endswith("/health"):
            return self.answer(200, {"ready": True})
        name = self.asked("meta")
        if name:
            call, takes, gives = TOOLS[name]
            self.answer(200, {"fqn": "dev.script.%s@1" % name, "type": "offchain", "url": "http://127.0.0.1:%d/%s" % (self.server.server_port, name),
                              "description": call.__name__, "input_schema": takes, "output_schema": gives})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.asked("invoke")
        if name:
            try:
                self.answer(200, TOOLS[name][0](**json.loads(body)))
            except (TypeError, ValueError) as e:
                self.answer(422, {"error": "input_deserialization_error", "details": str(e)})

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Tool)
    print("http://127.0.0.1:%d" % server.server_port, flush=True)
    if "--attached" in sys.argv:  # end when standard input does
        import threading
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
    else:
        server.serve_forever()
