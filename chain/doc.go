// Package chain holds the facts of custody and the rules that bind them: what an event is, what follows what, and what
// may happen to a letter. It does no input or output and knows no clock. This comment is the specification of the
// format; verify.py in the root of the repository is a second implementation of its first half.
//
// # Events
//
// An event is one JSON object (RFC 8259) on one line, UTF-8, stored and hashed as it is and never encoded anew:
//
//	{"v":1,"prev":"<64 hex>","seq":<n>,"type":"<type>","at":"2026-11-30T20:45:07.160156Z",...}
//	leaf(n) = SHA-256(0x00 || body(n))
//
// The first three members stand in this order, byte for byte, and a comma follows them. seq counts the events of the
// log from 0 without gaps. prev is the lowercase hexadecimal leaf hash of the event before, 64 zeros in the first. The
// leaf hash is the one of RFC 6962 section 2.1, so that the Merkle tree over the log and the chain of its events stand
// on the same hashes and cannot disagree. A log ends at its head: the number of events and the last leaf hash. Links
// alone cannot tell that the end of a log was cut off; a head noted elsewhere can.
//
// The grammar is narrower than JSON, so that no two readers see different things:
//
//   - no white space outside of strings, no byte order mark, nothing after the closing brace;
//   - at most 32 KiB, objects and arrays nested at most 6 deep, at most 128 members in one object;
//   - names are [a-z][a-z0-9_]*, written without escapes, and no name stands twice in one object, at any level;
//   - values are strings, integers from 0 to 2^53-1 without leading zeros, true, false, objects and arrays: no null, no
//     fraction, no exponent, no sign;
//   - strings are valid UTF-8 with the escapes of RFC 8259 section 7, no half surrogate pairs, no bytes below 0x20;
//   - instants are UTC with six digits and Z, as above, and exist: no February 30, no leap second;
//   - digests are 64 lowercase hexadecimal digits of SHA-256.
//
// After the first three the order of members is free for readers. Writers use one order, leave out what is empty, zero
// or false apart from case_seq, attempt and replays of an envelope, and size of received, and escape only what JSON
// makes them escape, in the shortest form. Seal is that writer, and the only one.
//
// A block, the unit that a log stores, is events with one newline byte between them. The newline byte is the only
// separator: U+2028, U+0085, vertical tabs and the like are text.
//
// # Members
//
// Of every event: type, at (the writer's clock; order is given by seq alone), actor (pseudonymous), and optionally
// reason, override, plan, owner, tag, untag, note and hold, which tell what a person did. Reasons and notes have at most
// 500 characters. Identifiers are tokens: 1 to 80 of A-Z a-z 0-9 . _ : / - from a letter or digit on, too narrow for
// names, mail addresses and free text.
//
// Of every event of a letter, the custody case of one payload: payload_ref (SHA-256 of the payload), case_seq (number of
// the event in its letter, from 0) and case_prev (leaf hash of the letter's event before, absent in the first), so that
// a letter on its own shows gaps; blob_version and retain_until, where the payload is and until when it is protected;
// blobs, a list of ref, blob_version and retain_until of other stored bytes that the event names.
//
//	genesis        the first event and only it: origin, log_id, keys, software
//	received       a payload arrived: size, channel, source, content_type, content_encoding
//	submission     another sender submitted the same bytes: channel, source
//	attempt        a worker took the letter, the lease: attempt, worker, lease_until, alone; an extension also has lease
//	attempt_lost   no outcome came: lease, reason (released, service_died, worker_vanished), attributed, evidence
//	retrying       failed, waits for a bounded retry: envelope; lease and attempt when a worker said so
//	dead_letter    failed, waits for a human: the same
//	poison         failed, quarantined: the same, attributed, evidence
//	replayed       to be processed again: reason, plan; override with a reason when a bound is overridden
//	resolved       outcome (admit, admit_with_warning, duplicate, ignored, by_hand), outcome_code, lease, attempt, rules,
//	               findings (code, pointer), findings_total, record_ref, record_key, record_version, record_content,
//	               unit_key
//	annotation     owner, tag, untag, note
//	payload_read   who opened the bytes, and why: reason
//	retention      retain_until extended; hold on or off
//	replay_plan    a bulk replay was ordered: plan, reason, override, worker, terms; taken over by another worker:
//	               plan, reason, worker
//	replay_cancel  and stopped: plan, reason, counts
//	replay_done    and ended: plan, counts
//	alert          someone was told: reason
//	key_rotate     the log signs with another key from here on: reason
//	reanchor       documents a confirmed break; history is never rewritten: reason
//
// The terms of a bulk replay are filter, a URL query; snapshot, the number of events at which its letters were counted;
// expected, their number; rate_milli, how many it replays in 1000 seconds at most; ramp, if it begins slowly; targets,
// the processors they go to. Its letters are those that filter meant at snapshot and whose disposition no event from
// snapshot on has changed; each is replayed, or is parked in poison, by an event with the plan. The counts at its end are
// replayed, parked, skipped (changed by others, or being processed) and cancelled; they add up to expected.
//
// A letter may also begin with a failure that was handed over; that event then has the members of received, too.
//
// # Envelope
//
// Failures carry the envelope whole: payload_ref; stage (ingest, validate, parse, normalize, dispatch); error_class
// (transient or permanent); error_code (the stage, a dot, a symbol in lower snake); attempt, counted from 1 since the
// last time the letter was queued; replays; first_seen; last_error (at most 500 characters); disposition (the type of
// the event); channel (ocr_document, mobile_export, telematics_api, manual_entry, other); source; next_attempt_at,
// exactly in retrying; rule, which decided; error_ref, stored bytes with the whole error. Transient failures retry and
// only they do. The envelope is validated when written and when read: one that breaks a rule is a finding.
//
// # Lifecycle
//
// A letter is in one disposition at any time. No edge leads out of custody; everything else is refused by Apply, when
// appending and when verifying alike.
//
//	(new)        received | retrying | dead_letter | poison
//	received     resolved | retrying | dead_letter | poison
//	retrying     resolved | retrying | dead_letter | poison | replayed (now, by an operator)
//	dead_letter  resolved (by hand) | replayed | dead_letter (again) | poison (a replay beyond the bound)
//	replayed     resolved | retrying | dead_letter | poison
//	poison       resolved (by hand) | replayed (override with a reason) | poison (another failure handed over)
//	resolved     retrying | dead_letter | poison (reopened: a later stage failed)
//
// attempt is taken in received, replayed and retrying, there not before next_attempt_at, and changes no disposition. One
// lease at a time: it is named by the seq of its attempt, ended by attempt_lost and by every change of disposition, and
// an event that names it later is refused. Resolved other than by hand needs the lease; by hand it needs a reason, and
// no lease may be running, as for replayed. An envelope continues its letter: the same first_seen and replays, and the
// attempt of the lease. Retention is never shortened, nor the payload moved. A letter takes at most 16 senders and 16
// tags. It remembers the 16 latest distinct failures handed over, those without a lease, until it is replayed or
// resolved, so that a repeated hand-over is told from a new one; nothing is refused for it. The other events of letters are taken in every disposition, and none of them before the letter exists.
//
// # Evolution
//
// Types and members never change meaning. New members are optional and absent when unset. A reader hashes and ignores
// members it does not know, unless crit, a list of names, says that they must be understood; such an event, an event of
// an unknown type, and one with a v above 1 were written by a newer version: not checkable here, which is neither intact
// nor broken. The bytes in testdata are never generated anew.
//
// # Example
//
// The letter of the payload {}, received and leased:
//
//	{"v":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","seq":0,"type":"genesis","at":"2026-03-02T06:30:00.000000Z","actor":"system","origin":"holdfast.example/acme","log_id":"3f2a"}
//	leaf(0) = 708847a5fb04a1b5689f6d1f8e4d61ae686095238f9ee487cee62e85036346b3
//	{"v":1,"prev":"708847a5fb04a1b5689f6d1f8e4d61ae686095238f9ee487cee62e85036346b3","seq":1,"type":"received","at":"2026-03-02T06:30:01.000000Z","actor":"fleet:17","payload_ref":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","case_seq":0,"blob_version":"1","retain_until":"2027-09-02T06:30:01.000000Z","size":2,"channel":"mobile_export"}
//	leaf(1) = abd290b692b222918d149d41bf12fc96a59f53507beb3566eab51e5c134864b8
//	{"v":1,"prev":"abd290b692b222918d149d41bf12fc96a59f53507beb3566eab51e5c134864b8","seq":2,"type":"attempt","at":"2026-03-02T06:30:02.000000Z","actor":"system","payload_ref":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","case_seq":1,"case_prev":"abd290b692b222918d149d41bf12fc96a59f53507beb3566eab51e5c134864b8","blob_version":"1","retain_until":"2027-09-02T06:30:01.000000Z","attempt":1,"worker":"worker:1","lease_until":"2026-03-02T06:31:02.000000Z"}
//	leaf(2) = 7cdcf2a46f426b5077aab07071299a3b43c93bc07304e40e17de547ed5c8f4bc
package chain
