#!/usr/bin/env python3
"""A worker for Holdfast with the Python standard library alone.

It leases payloads of a pull processor one at a time, sends heartbeats while it works, tells what came of them, and
gives back what it is at when it is stopped. Put your own work into the function work().

    HOLDFAST_TOKEN=hf_... python3 worker.py --server http://127.0.0.1:8420 --processor field
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request


class Rejected(Exception):
    """The payload is at fault: trying again does not help."""


def work(job, payload):
    """Makes a record, a dict, of the payload. This one reads lines of "name: value".

    Raise Rejected for a bad payload. Any other exception goes to Holdfast under the name of its class: its table knows
    which of them are worth another try (TimeoutError, ConnectionResetError, ...) and which are not.
    """
    if not payload.strip():
        raise Rejected("there is nothing in it")
    record = {"payload_ref": job["payload_ref"], "fields": {}}
    for number, line in enumerate(payload.decode().splitlines(), 1):
        name, colon, value = line.partition(":")
        if not colon:
            raise Rejected("line %d has no colon" % number)
        record["fields"][name.strip()] = value.strip()
    return record


class Refusal(Exception):
    """The service said no: status, and its problem+json (RFC 9457)."""

    def __init__(self, status, problem):
        super().__init__("%d %s" % (status, problem.get("detail") or problem.get("title")))
        self.status = status
        self.over = problem.get("type") == "urn:holdfast:problem:lease"


class Holdfast:
    def __init__(self, server, token):
        self.server, self.token = server.rstrip("/"), token

    def call(self, method, path, body=None, timeout=90):
        request = urllib.request.Request(self.server + path, data=body, method=method)
        request.add_header("Authorization", "Bearer " + self.token)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            try:
                problem = json.loads(error.read())
            except ValueError:
                problem = {}
            raise Refusal(error.code, problem) from None

    def post(self, path, body=None):
        raw = b"" if body is None else json.dumps(body).encode()
        answer = self.call("POST", path, raw)
        return json.loads(answer) if answer else None


class Worker:
    def __init__(self, service, name, processor, lease_seconds):
        self.service, self.lease_seconds = service, lease_seconds
        self.order = {"worker": name, "processors": [processor], "lease_seconds": lease_seconds, "wait_seconds": 5}
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                for job in self.service.post("/v1/work/lease", self.order)["work"]:
                    self.work_on(job)
            except Refusal as refusal:
                if refusal.status < 500:
                    raise
                self.stopping.wait(5)
            except OSError:  # the service is away
                self.stopping.wait(5)

    def work_on(self, job):
        lease = "/v1/work/" + job["lease"]
        done = threading.Event()
        beating = threading.Thread(target=self.beat, args=(lease, done))
        beating.start()
        try:
            payload = self.service.call("GET", lease + "/payload")
            if hashlib.sha256(payload).hexdigest() != job["payload_ref"]:
                raise OSError("the payload is damaged")
            if self.stopping.is_set():
                self.service.post(lease + "/release")
                return
            try:
                record = work(job, payload)
            except Rejected as error:
                self.fail(lease, "rule", str(error))
            except Exception as error:
                self.fail(lease, type(error).__name__, str(error))
            else:
                self.service.call("POST", lease + "/complete", json.dumps(record).encode())
        except Refusal as refusal:
            if not refusal.over:  # else the lease was lost meanwhile: somebody else has the letter
                raise
        finally:
            done.set()
            beating.join()

    def fail(self, lease, kind, message):
        self.service.post(lease + "/fail", {"stage": "parse", "error_type": kind, "message": message})

    def beat(self, lease, done):
        while not done.wait(self.lease_seconds / 3):
            try:
                self.service.post(lease + "/heartbeat")
            except (Refusal, OSError):
                pass  # what comes of it shows when the outcome is told


def main():
    parser = argparse.ArgumentParser(description="A worker for Holdfast.")
    parser.add_argument("--server", default="http://127.0.0.1:8420")
    parser.add_argument("--processor", default="field")
    parser.add_argument("--name", default=socket.gethostname())
    parser.add_argument("--lease", type=int, default=60, metavar="SECONDS")
    args = parser.parse_args()
    worker = Worker(Holdfast(args.server, os.environ["HOLDFAST_TOKEN"]), args.name, args.processor, args.lease)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stopping.set())
    worker.run()


if __name__ == "__main__":
    main()
