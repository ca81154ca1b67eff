#!/usr/bin/env python3
"""An HTTP/1.1 relay that loses, cuts, delays and refuses, between a client and an object store.

Usage: faulty_relay.py UPSTREAM_URL [--seed N] [--refuse 0.06] [--lose 0.03] [--cut 0.02] [--stall 0.01]

Prints its own address, and serves until its input ends. Of each request it decides by the seed and the request's
number: refuse (503 before the store sees it), lose (the store has carried it out, and the answer never comes), cut
(the connection breaks in the middle of the answer's body), stall (two seconds of silence in it). Requests go on byte
for byte, `Host` too, so that signatures hold.
"""
import argparse
import http.client
import http.server
import itertools
import random
import socketserver
import sys
import threading
import time
import urllib.parse

STALL_SECONDS = 2
REFUSAL = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Relay(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = None
    numbers = itertools.count()
    done = {"passed": 0, "refuse": 0, "lose": 0, "cut": 0, "stall": 0}
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def fault(self):
        with self.lock:
            number = next(self.numbers)
        drawn = random.Random(f"{self.options.seed}/{number}").random()
        for name in ("refuse", "lose", "cut", "stall"):
            drawn -= getattr(self.options, name)
            if drawn < 0:
                return name
        return "passed"

    def relay(self):
        fault = self.fault()
        with self.lock:
            self.done[fault] += 1
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "refuse":
            self.answer(503, [("Content-Type", "application/xml"), ("Content-Length", str(len(REFUSAL)))], REFUSAL)
            return
        store = http.client.HTTPConnection(self.options.host, self.options.port, timeout=120)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                store.putheader(name, value)
            store.endheaders(body)
            reply = store.getresponse()
            content = reply.read()
            headers = [(n, v) for n, v in reply.getheaders() if n.lower() not in ("connection", "transfer-encoding")]
            if reply.getheader("Content-Length") is None and reply.status != 204:
                headers.append(("Content-Length", str(len(content))))
        finally:
            store.close()
        if fault == "lose":
            self.close_connection = True
        else:
            self.answer(reply.status, headers, content, fault)

    def answer(self, status, headers, content, fault="passed"):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(content) // 2
        self.wfile.write(content[:half])
        if fault == "stall":
            self.wfile.flush()
            time.sleep(STALL_SECONDS)
        if fault == "cut" and content:
            self.close_connection = True
            return
        self.wfile.write(content[half:])

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = relay


class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        pass  # a client that went away


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("upstream")
    parser.add_argument("--seed", type=int, default=1)
    for name, share in (("refuse", 0.06), ("lose", 0.03), ("cut", 0.02), ("stall", 0.01)):
        parser.add_argument(f"--{name}", type=float, default=share)
    options = parser.parse_args()
    upstream = urllib.parse.urlsplit(options.upstream)
    options.host, options.port = upstream.hostname, upstream.port
    Relay.options = options
    server = Threads(("127.0.0.1", 0), Relay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()
    print("relayed: " + ", ".join(f"{name} {count}" for name, count in Relay.done.items()), file=sys.stderr)


if __name__ == "__main__":
    main()
