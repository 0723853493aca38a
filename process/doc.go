// Package process runs payloads: it finds due letters, leases them, hands their bytes to a processor and records
// what came of it.
//
// [Routes] tell which [Target] a letter goes to. The [Pool] brings letters to processors: children of the service that
// judge reports ([Builtin], [Children]), programs ([Exec]) and servers ([HTTP]). Workers outside of the service come for
// letters to the [Desk].
//
// A lease is an event, appended before anything runs, so a crash leaves an attempt without an outcome and never
// an outcome without an attempt. What this service had leased when it died is given back at its next start
// (Pool.reclaim); what another instance lets expire is given back by whoever sees it (Pool.expire). Neither uses
// an attempt: nobody knows whose fault it was. The letter runs alone next.
//
// Flow of one letter:
//
//	Due (projection) -> gate -> Queue.Lease -> Store.Get -> Processor.Process -> Queue.Complete | Queue.FailJob
//
// The gate of a target keeps its rate, and is shut while the target fails; who waits there holds no lease. A process that
// dies of a payload, while it works on nothing else, has shown that this payload does it: the letter is quarantined at once.
// One that takes longer than the lease has failed for now, which uses an attempt. A fault of our own (the store cannot be
// read) gives the letter back at no cost; it then waits, longer each time, so that others get their turn. The end of the
// service, after a short grace, gives back what runs likewise.
package process
