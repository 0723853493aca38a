"""The event grammar once more, in another language and from the text of the package comment alone.

Reads events from standard input, each after its length as four bytes, and answers each with one byte: 1 if it follows
the grammar, 0 if not."""
import json
import re
import struct
import sys

HEADER = re.compile(rb'\{"v":1,"prev":"[0-9a-f]{64}","seq":(0|[1-9][0-9]*),')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(:?)', re.S)


def members(pairs):
    if len(dict(pairs)) != len(pairs) or len(pairs) > 128:
        raise ValueError
    return dict(pairs)


def integer(text):
    if not text.isdecimal() or not text.isascii() or len(text) > 16 or int(text) > 2**53 - 1:
        raise ValueError
    return int(text)


def walk(value, level):
    if value is None:
        raise ValueError
    if isinstance(value, str):
        value.encode()  # fails on half a surrogate pair
    if isinstance(value, (dict, list)):
        if level > 6:
            raise ValueError
        for item in value.values() if isinstance(value, dict) else value:
            walk(item, level + 1)


def check(raw):
    if len(raw) > 32768 or not HEADER.match(raw):
        raise ValueError
    text = raw.decode()
    for name, colon in STRING.findall(text):
        if colon and not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise ValueError
    if not re.fullmatch(r'[^\s]*', STRING.sub("", text), re.A):
        raise ValueError
    event = json.loads(text, object_pairs_hook=members, parse_int=integer, parse_float=integer, parse_constant=integer)
    if not isinstance(event, dict):
        raise ValueError
    walk(event, 1)


def main():
    while size := sys.stdin.buffer.read(4):
        raw = sys.stdin.buffer.read(struct.unpack(">I", size)[0])
        try:
            check(raw)
            answer = b"1"
        except (ValueError, RecursionError):
            answer = b"0"
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


main()
