// Package jetstream keeps the log in NATS JetStream: on a server inside this process, or on a server or cluster
// elsewhere. Log implements chain.Log.
//
// # What is stored
//
// One stream holds the log, and the stream is the only truth. One message is one block: its body is
// chain.JoinLines of 1 to chain.MaxBlockEvents events, its stream sequence is the chain.Position. The headers
// Holdfast-Block (a random id of the block), Holdfast-Log (the log id, once known), Holdfast-First-Seq and
// Holdfast-Count help observers and this package; no proof rests on them.
//
// The stream is in files, has no limits, refuses what exceeds it rather than dropping what it has, and denies
// deletion and purge to clients. Those flags bind clients, not administrators: whoever may administer the
// server can still edit the stream's settings or remove it. What proves the history is the chain of hashes in
// the events. Nothing in the stream's settings makes a publisher compare positions, so give only this service
// the right to publish on Subject, and nobody the right to publish Nats-Expected-Last-Msg-Id, which stops
// replicated streams of the server versions 2.14.0 to 2.15.3 for good.
//
// # What an append promises
//
// A block is published with Nats-Expected-Last-Sequence, so that the stream takes it right after the block it
// was made for, or not at all. It therefore has one place where it can ever land, and looking there settles
// every doubt. The acknowledgement follows the fsync of the block (one server) or of a quorum's log (replicas).
// That needs the server option sync_always, which the embedded server always has and which Open demands of
// others: by default a server loses acknowledged messages, up to the whole stream, when power fails, even after
// a clean shutdown.
//
// Blocks are never pipelined, the client neither buffers across reconnects nor retries by itself. Callers keep
// one append in flight; any number of processes may append to one log on an external server.
//
// # Opening
//
// Open refuses, with words an operator can act on: a folder in use (LockedError), a stream that is not there
// when only reading (ErrMissing), settings that differ from the wanted ones (SettingError), messages that are
// gone, unreadable or not blocks (DamageError), a server that does not sync (ErrUnsynced) or takes no whole block (ErrMessageLimit).
//
// The server cuts a torn end off the last block file when it starts. That end was never acknowledged if the
// disk kept what it was told to sync. A log that ends earlier than before is visible only to those who know
// where it ended: compare End with a stored position, or read after it; reading after a position that the log
// does not reach is a DamageError.
//
// # Limits
//
// Use ext4 or xfs with their journals: the server does not sync the folder when it adds a block file. Open
// syncs the newest files and the folders before it reads them, so that a block found after a crash is as
// durable as an acknowledged one. The same cannot be done for an external server: a block that Append finds by
// looking, because the server was killed between writing and syncing and has restarted, becomes durable with
// the next synced write, or when the operating system writes it out.
//
// After a disk error the server keeps silent and refuses writes until it is restarted: Append returns
// chain.ErrUnknown when its context ends, and Healthy tells why.
package jetstream
