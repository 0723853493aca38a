#!/usr/bin/env python3
"""Verifies an exported Holdfast log, one event per line, with nothing but Python 3.

usage: python3 verify.py FILE [--head SIZE:HASH]

--head is the log's head as somebody else noted it: the number of events, and the leaf hash of the last. Without it
nothing can tell that the end was cut off or written anew. Prints OK and exits 0, or BROKEN and exits 2; exits 1 if
it could not verify. The rules are those of the package chain, whose comment specifies the format, as far as bytes,
links, case links and the tree go; which members an event needs, what an envelope holds, which step a letter may take,
and what crit demands is left to holdfast verify."""
import hashlib, json, re, sys

STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(:?)')
HEADER = re.compile(rb'\{"v":1,"prev":"([0-9a-f]{64})","seq":(0|[1-9][0-9]{0,15}),')


class Broken(Exception):
    pass


def require(ok, why):
    if not ok:
        raise Broken(why)


def members(pairs):
    require(len(dict(pairs)) == len(pairs), "a name twice in one object")
    require(len(pairs) <= 128, "more than 128 members in one object")
    require(all(re.fullmatch("[a-z][a-z0-9_]*", name, re.A) for name, _ in pairs), "a name that is not plain")
    return dict(pairs)


def integer(text):
    require(text.isdecimal() and len(text) < 17 and int(text) < 2**53, "a number that is not a plain integer")
    return int(text)


def plain(value, depth=1):
    require(value is not None and depth <= 6 + (not isinstance(value, (dict, list))), "null, or nested too deep")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        plain(inner, depth + 1)


def parse(body):
    require(not re.search(rb"\s", STRING.sub(b"", body)), "white space outside a string")
    require(not any(colon and b"\\" in text for text, colon in STRING.findall(body)), "a name with an escape")
    try:
        event = json.loads(body.decode(), object_pairs_hook=members, parse_int=integer, parse_float=integer, parse_constant=integer)
        json.dumps(event, ensure_ascii=False).encode()  # fails on half a surrogate pair
        plain(event)
        return event
    except (ValueError, RecursionError):
        raise Broken("not strict JSON") from None


def join(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class Log:
    def __init__(self):
        self.size, self.leaf, self.cases, self.tree = 0, bytes(32), {}, []  # tree: complete subtrees, (size, hash)

    def add(self, body):
        header = HEADER.match(body)
        require(header and len(body) <= 32768, "does not begin with v, prev and seq, or is too long")
        require(int(header[2]) == self.size, "seq is not the next number")
        require(header[1].decode() == self.leaf.hex(), "prev is not the leaf hash of the event before")
        event, leaf = parse(body), hashlib.sha256(b"\0" + body).digest()
        if "payload_ref" in event:
            letter = str(event["payload_ref"])
            case = str(event.get("case_seq")), event.get("case_prev", "")
            require(case == self.cases.get(letter, ("0", "")), "case_seq and case_prev do not continue the letter")
            self.cases[letter] = str(int(case[0]) + 1), leaf.hex()
        self.size, self.leaf, subtree = self.size + 1, leaf, (1, leaf)
        while self.tree and self.tree[-1][0] == subtree[0]:
            subtree = 2 * subtree[0], join(self.tree.pop()[1], subtree[1])
        self.tree.append(subtree)

    def root(self):
        *rest, root = [hash for _, hash in self.tree] or [hashlib.sha256().digest()]
        for hash in reversed(rest):
            root = join(hash, root)
        return root.hex()


def verify(lines, size, leaf):
    log = Log()
    try:
        for line in lines:
            require(log.size + 1 != size or hashlib.sha256(b"\0" + line.removesuffix(b"\n")).hexdigest() == leaf, "is not the event of --head")
            log.add(line.removesuffix(b"\n"))
        require(log.size >= size, "the log ends before the event of --head")
    except Broken as why:
        print(f"BROKEN at {log.size}: {why}")
        return 2
    print(f"OK {log.size} events, head {log.leaf.hex()}, root {log.root()}")
    return 0


def main(args):
    head = re.fullmatch("([0-9]{1,16}):([0-9a-f]{64})", args[2], re.A) if len(args) == 3 and args[1] == "--head" else None
    if len(args) != 1 and not head:
        print(__doc__, file=sys.stderr)
        return 1
    try:
        with open(args[0], "rb") as lines:  # in binary, lines end with the newline byte and nothing else
            return verify(lines, int(head[1]) if head else 0, head[2] if head else "")
    except OSError as why:
        print(f"cannot read the log: {why.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
