// Package deadletter takes the decisions about letters and is the only writer of the log.
//
// Every decision is taken at the head of the log: Queue gathers what callers want, folds each wish onto the state
// that the event before it left behind, seals the resulting events into one block and appends it with
// compare-and-swap. If another instance was faster, the decisions are taken again on the new head; if the outcome
// of an append is unknown, nothing else happens until the log itself has told.
//
// Write order, and what a crash leaves behind:
//
//	payload stored    -> orphan bytes; the sender was not answered, sends again, and finds them stored
//	event appended    -> the letter exists; the sender repeats and gets the same receipt
//	answer            -> done
//
// The projection follows the log on its own and may lag; until it has caught up, the queue remembers the letters
// it touched.
//
// A plan (CreatePlan) replays the letters that a filter means, and of these only those that it meant when they were
// counted: the preview tells the count and the snapshot, the size of the log at which it was taken, and the order repeats
// both. Letters that came later, that failed again, or that somebody else has dealt with meanwhile are left alone.
// Nothing of a plan is kept outside the log: whoever carries it out (RunPlans) lists what is left, and has each letter
// replayed by a decision at the head, so that neither a crash nor a second runner replays a letter twice.
//
// Classification (Classify) and the retry schedule (RetryAt) are pure functions; what they decided stands in the
// event, so that a fold needs neither them nor a clock.
package deadletter
