#!/usr/bin/env python3
"""A whole worker of Postern in plain Python 3: nothing but the standard library.

    python3 worker.py 127.0.0.1:9000 journal.jsonl

It takes every type, "sends" it (see send and look_up: put your own there), and keeps the three promises
of docs/worker-contract.md (sections 6 to 8), also over its own kill -9:

  1. A token is executed once. It is on the disk as begun before it is executed, and its answer is on the
     disk before it is given; sent again, it gets the same answer.
  2. A call with a lower fence than one seen on its line is refused with 409 and executes nothing.
  3. /status says what became of a token or a hash, and says 503 where it cannot know: never "unknown".
"""

import json
import math
import os
import signal
import sys
import threading
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST = 2 << 20  # bytes of a body
FIRST_FEE = 100  # of the first attempt


def fee(call):
    """What to offer: postern.fee, else the first fee times postern.fee_factor, rounded up."""
    postern = call["postern"]
    return postern.get("fee") or str(math.ceil(FIRST_FEE * Fraction(postern.get("fee_factor", "1"))))


def send(transaction, again, call):
    """Do it, and return the hash to ask after it by. transaction is the same for all attempts: pass it on as
    the idempotency key. again: this token began before and nobody knows its end, so look before you do it.
    Raise Refused to say that it was not done."""
    if call["txData"]["data"] is None:
        raise Refused("rejected", "no_data", "txData.data is null: there is nothing to send")
    return "py-" + transaction


def look_up(hash):
    """What became of what was sent, as the contract says it. This one is there at once, and in no block."""
    return {"state": "done", "hash": hash, "failure_reason": None}


class Refused(Exception):
    """An error with a class: rejected (never), retry (this attempt failed and left nothing behind), blocked
    (not now, nothing was done), or ambiguous (it may have been done: Postern asks by token)."""

    def __init__(self, cls, code, message):
        self.cls, self.code, self.message = cls, code, message


class Memory:
    """Tokens, hashes and fences, in a file that is on the disk before anything is answered."""

    def __init__(self, path):
        self.lock = threading.Condition()
        self.answers = {}  # token -> answer, None while it is open
        self.hashes = set()
        self.fences = {}
        self.running = set()
        self.file = open(path, "ab+")
        self.file.seek(0)
        whole = 0
        for line in self.file:
            if not line.endswith(b"\n"):
                break  # cut off by a crash: it was never answered for
            self.play(json.loads(line))
            whole += len(line)
        self.file.truncate(whole)

    def play(self, change):
        if "line" in change:
            self.fences[change["line"]] = change["fence"]
        elif change.get("gone"):
            self.answers.pop(change["token"], None)
        else:
            answer = change.get("answer")
            self.answers[change["token"]] = answer
            if answer and answer.get("hash"):
                self.hashes.add(answer["hash"])

    def keep(self, **change):
        try:
            self.file.write(json.dumps(change).encode() + b"\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError:
            os._exit(1)  # nobody knows what the file holds now: only reading it again tells
        self.play(change)


memory = None


def dispatch(call, line):
    """Execute a call once; returns (HTTP status, answer). line is what fences are compared within, None for a call
    that is taken with any fence."""
    postern = call["postern"]
    token, fence = postern["token"], postern["fence"]
    with memory.lock:
        while token in memory.running:
            memory.lock.wait()
        if line and fence < memory.fences.get(line, fence):
            return 409, error("ambiguous", "stale_fence", "a higher fence came on this line: nothing was done")
        if line and fence != memory.fences.get(line):
            memory.keep(line=line, fence=fence)
        again = token in memory.answers
        if again and memory.answers[token] is not None:
            return 200, memory.answers[token]
        if not again:
            memory.keep(token=token)
        memory.running.add(token)
    change, result = {}, None
    try:
        hash = send(token.rsplit(".", 1)[0], again, call)
        result = 200, {"hash": hash, "done": None, "error": None, "fee": fee(call)}
        change = {"token": token, "answer": result[1]}
    except Refused as refused:
        result = {"blocked": 503, "ambiguous": 504}.get(refused.cls, 200), error(refused.cls, refused.code, refused.message)
        if refused.cls in ("rejected", "retry"):
            change = {"token": token, "answer": result[1]}
        elif refused.cls == "blocked" and not again:
            change = {"token": token, "gone": True}
    except Exception as failure:  # nobody knows how far it came
        result = 504, error("ambiguous", "worker_failed", repr(failure))
    finally:
        with memory.lock:
            if change:
                memory.keep(**change)
            memory.running.discard(token)
            memory.lock.notify_all()
    return result


def status(question):
    token, hash = question.get("token"), question.get("hash")
    with memory.lock:
        if token:
            if token in memory.running:
                return 503, {"message": "the call is being worked on: ask again"}
            answer = memory.answers.get(token)
            if answer is None:
                return 200, UNKNOWN  # never seen, or open: sent again, send() looks before it does it
            if answer["error"]:
                return 200, {"state": "failed", "block_height": None, "failure_reason": answer["error"]["message"]}
            hash = answer["hash"]
        if not isinstance(hash, str) or not hash:
            return 400, error("rejected", "bad_request", "neither token nor hash")
        if hash not in memory.hashes:
            return 200, UNKNOWN
    return 200, look_up(hash)


UNKNOWN = {"state": "unknown", "block_height": None, "failure_reason": None}


def error(cls, code, message):
    return {"hash": "", "done": None, "error": {"class": cls, "code": code, "message": message}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    disable_nagle_algorithm = True

    def do_POST(self):
        verb = self.path.split("/")[1]
        if verb not in ("dispatch", "on-success", "on-failure", "status", "status:batch"):
            return self.say(404, {"message": "no such call"}, close=True)
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST:
            return self.say(413 if length.isdigit() else 411, {"message": "want a body of at most 2 MiB"}, close=True)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return self.say(400, {"message": "the body broke off"}, close=True)
        try:
            call = json.loads(body)
            if verb == "status:batch":
                statuses = [status({"hash": hash})[1] for hash in call["hashes"]]
                return self.say(200, {"statuses": statuses})
            if verb == "status":
                return self.say(*status(call))
            check(call)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
            return self.say(400, error("rejected", "bad_request", "the body is not understood: " + repr(failure)))
        if verb == "dispatch":
            return self.say(*dispatch(call, self.headers.get("Postern-Line")))
        self.say(200, {})  # hooks: nothing to do, as often as they come

    def do_GET(self):
        if self.path == "/health":
            return self.say(200, {"ok": True})
        self.say(404, {"message": "no such call"})  # also max-retries: the dispatcher's setting rules

    def say(self, code, answer, close=False):
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def check(call):
    """Raise unless this is a call whose token and fence can be trusted to be there."""
    postern = call["postern"]
    if not isinstance(postern["token"], str) or not postern["token"]:
        raise ValueError("postern.token is empty")
    int(postern.get("fence", 0)), call["txData"]["data"], call["sender"]["queue"]
    postern.setdefault("fence", 0)


class Server(ThreadingHTTPServer):
    daemon_threads = False  # calls in flight end before the process does
    request_queue_size = 128


def main():
    global memory
    host, port = sys.argv[1].rsplit(":", 1)
    memory = Memory(sys.argv[2])
    server = Server((host, int(port)), Handler)
    stop = lambda *_: threading.Thread(target=server.shutdown).start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print("http://%s:%d" % server.server_address, flush=True)
    server.serve_forever(poll_interval=0.05)
    server.server_close()


if __name__ == "__main__":
    main()
