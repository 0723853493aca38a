// Package audit proves a log: that it is whole, that every event is the one that was written, that every letter came
// to where it is by steps the lifecycle has, that the bytes the events name are there, unchanged and protected, and
// that the projection is what the events amount to.
//
// # What is reported
//
// Verify does not stop at what is wrong. It goes on from the next event that can be placed, and reports all that it
// finds; a thing that is wrong once is reported once. The report names the first bad sequence: the first number whose
// event is not the one that was written, or not there.
//
// What one intrusion looks like, if it is the only one within two events:
//
//	event n changed, its first members intact    changed at n: event n+1 was written after another one
//	event n changed, with prev or seq            changed at n: neither neighbour is linked to it
//	event n made unreadable                      grammar, or field, at n
//	events n to m removed                        missing at n
//	a forged event before n                      forked, inserted or changed at n
//	events n and n+1 exchanged                   misplaced at n
//	event n repeated after itself                repeated at n+1, which is the place
//	the end cut off from n on                    truncated at n, if a head is known
//
// # What cannot be decided
//
// Links tell that two neighbours do not belong together; which of them is the false one is told by a third, the
// event after both. So two changes side by side look like one change of the later event and its prev. And the last
// event has no third:
//
//   - the last event changed, or cut off, shows only beside a stored head;
//   - when the link to the last event is broken, the stored head decides which of the two is false, else the
//     projection, and else the earlier is named, in words that say so;
//   - a valid event appended after the last is an append;
//   - a history sealed anew from event n on is a valid log. A stored head tells that it was; only a projection that
//     was kept apart tells n.
//
// A stored head is an Anchor. It binds everything before it, and nothing after it.
//
// An event of a newer version is linked like any other, but not understood: it and what follows from it for its
// letter are not judged, and the verdict is at best Unchecked. When its link is broken it is as false as any other.
//
// # Letters
//
// Every event of a letter is put to chain.Letter.Apply. After a break, a letter whose events do not follow each
// other any more cannot be judged: only the links between its events are followed from there on. If no break of the
// log explains it, it is a finding of its own.
//
// # Costs
//
// The log is read once and in order, and the events themselves are not kept. Links and tree need constant memory. The
// lifecycle needs about 300 bytes for every letter of the log, open or resolved, since a resolved letter can be
// reopened; 100 more while it is leased; and checking stored bytes takes about 200 for each that is no payload.
package audit
