// Package process runs payloads: it finds due letters, leases them, hands their bytes to a processor and records
// what came of it.
//
// A lease is an event, appended before anything runs, so a crash leaves an attempt without an outcome and never
// an outcome without an attempt. What this service had leased when it died is given back at its next start
// (Pool.reclaim); what another instance lets expire is given back by whoever sees it (Pool.expire). Neither uses
// an attempt: nobody knows whose fault it was. The letter runs alone next.
//
// Flow of one letter:
//
//	Due (projection) -> Queue.Lease -> Store.Get -> Processor.Process -> Queue.Complete | Queue.FailJob
//
// A processor that panics has shown that this payload crashes it: the letter is quarantined at once. One that takes
// longer than the lease has failed for now, which uses an attempt; if it does not heed its context, it is left running
// and its late result is dropped. A fault of our own (the store cannot be read) gives the letter back at no cost; it
// then waits, longer each time, so that others get their turn. The end of the service, after a short grace, gives
// back what runs likewise.
package process
