#!/usr/bin/env python3
"""A worker for Holdfast with the Python standard library alone.

It leases payloads of a pull processor one at a time, sends heartbeats while it works, tells what came of them, and
gives back what it is at when it is stopped. Put your own work into the function work().

    HOLDFAST_TOKEN=hf_... python3 worker.py --server http://127.0.0.1:8420 --processor field
"""

import argparse
import hashlib
import http.client
import json
import os
import signal
import socket
import threading
import time
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


class Stopped(BaseException):
    """The worker is to stop, in the middle of work()."""


class Refusal(Exception):
    """The service said no: status, and its problem+json (RFC 9457)."""

    def __init__(self, status, problem):
        super().__init__("%d %s" % (status, problem.get("detail") or problem.get("title")))
        self.over = problem.get("type") == "urn:holdfast:problem:lease"  # somebody else has the letter
        self.final = status < 500 and status != 429  # asking again does not help
        self.record = status in (413, 422)  # what was sent is at fault


AWAY = (OSError, http.client.HTTPException)


class Holdfast:
    def __init__(self, server, token):
        self.server, self.token = server.rstrip("/"), token

    def call(self, method, path, body=None, timeout=30):
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
            except (ValueError, *AWAY):
                problem = {}
            raise Refusal(error.code, problem) from None


class Worker:
    def __init__(self, service, name, processor, lease_seconds):
        self.service, self.lease_seconds = service, lease_seconds
        self.order = {"worker": name, "processors": [processor], "lease_seconds": lease_seconds, "wait_seconds": 5}
        self.stopping = threading.Event()
        self.working = False

    def stop(self, *_):
        self.stopping.set()
        if self.working:
            self.working = False
            raise Stopped

    def run(self):
        while not self.stopping.is_set():
            try:
                answer = self.service.call("POST", "/v1/work/lease", json.dumps(self.order).encode())
                for job in json.loads(answer)["work"]:
                    self.work_on(job)
            except Refusal as refusal:
                if refusal.final and not refusal.over:
                    raise
                self.stopping.wait(5)
            except AWAY:  # the service is away
                self.stopping.wait(5)

    def work_on(self, job):
        """Beats until the outcome is told: a lease that just ends looks as if the letter had taken the worker down."""
        lease = "/v1/work/" + job["lease"]
        done = threading.Event()
        beating = threading.Thread(target=self.beat, args=(lease, done))
        beating.start()
        try:
            self.tell(lease, *self.outcome(job, lease))
        finally:
            done.set()
            beating.join()

    def outcome(self, job, lease):
        """What is to be told of the letter: the end of the path, and the body."""
        try:
            payload = self.service.call("GET", lease + "/payload")
        except Refusal as refusal:
            if refusal.over:
                raise
            payload = None
        except AWAY:
            payload = None
        if payload is None or hashlib.sha256(payload).hexdigest() != job["payload_ref"]:
            self.stopping.wait(5)  # not the letter's fault, and not better at once
            return "release", b""
        try:
            return "complete", json.dumps(self.attempt(job, payload)).encode()
        except Stopped:
            return "release", b""
        except Rejected as error:
            return "fail", failure("rule", error)
        except Exception as error:
            return "fail", failure(type(error).__name__, error)

    def attempt(self, job, payload):
        self.working = True
        try:
            if self.stopping.is_set():
                raise Stopped
            return work(job, payload)
        finally:
            self.working = False

    def tell(self, lease, what, body):
        try:
            self.insist("POST", lease + "/" + what, body)
        except Refusal as refusal:
            if refusal.over:
                raise
            if what == "complete" and refusal.record:
                self.tell(lease, "fail", failure("rule", refusal))
                return
            if what != "release":
                self.insist("POST", lease + "/release", b"")
            raise

    def insist(self, method, path, body=None):
        """Asks until the service agrees, or refuses for good; for half a minute more if the worker is to stop."""
        left = 30
        while True:
            try:
                return self.service.call(method, path, body)
            except (Refusal, *AWAY) as error:
                if left == 0 or isinstance(error, Refusal) and error.final:
                    raise
            time.sleep(1)
            if self.stopping.is_set():
                left -= 1

    def beat(self, lease, done):
        every = self.lease_seconds / 3
        while not done.wait(every):
            try:
                self.service.call("POST", lease + "/heartbeat", b"", timeout=every)
            except (Refusal, *AWAY):
                pass  # what comes of it shows when the outcome is told


def failure(kind, error):
    return json.dumps({"stage": "parse", "error_type": kind, "message": str(error)[:100000]}).encode()


def main():
    parser = argparse.ArgumentParser(description="A worker for Holdfast.")
    parser.add_argument("--server", default="http://127.0.0.1:8420")
    parser.add_argument("--processor", default="field")
    parser.add_argument("--name", default=socket.gethostname())
    parser.add_argument("--lease", type=int, default=60, metavar="SECONDS")
    args = parser.parse_args()
    worker = Worker(Holdfast(args.server, os.environ["HOLDFAST_TOKEN"]), args.name, args.processor, args.lease)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.stop)
    worker.run()


if __name__ == "__main__":
    main()
