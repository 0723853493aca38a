package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Verdict is what a verification comes to. Its number is the exit code of whoever reports it; 1 is left for a
// verification that could not run at all, which is an error and not a verdict.
type Verdict int

// Verdicts.
const (
	OK        Verdict = 0 // nothing found
	Tampered  Verdict = 2 // changed, removed, inserted, cut off, or lost
	Unchecked Verdict = 3 // nothing bad found, but not everything could be read
)

func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case Tampered:
		return "tampered"
	case Unchecked:
		return "not checkable"
	}
	return "unknown"
}

// Kind names what a finding is about.
type Kind string

// Kinds of findings about the log. Seq is the first sequence that is not as it was.
const (
	Grammar        = Kind(chain.BreakGrammar)   // the bytes are not an event
	Field          = Kind(chain.BreakField)     // a member or the envelope breaks its rule
	Lifecycle      = Kind(chain.BreakLifecycle) // the letter could not take this step
	Newer          = Kind(chain.BreakNewer)     // written by a newer version: linked, but not understood here
	Changed   Kind = "changed"                  // not the event that the next one, or the head, was written after
	Missing   Kind = "missing"                  // Seq, and perhaps more, does not stand where it belongs
	Forked    Kind = "forked"                   // two events claim Seq
	Inserted  Kind = "inserted"                 // something stands before Seq that the log does not continue from
	Repeated  Kind = "repeated"                 // the event before stands here once more
	Misplaced Kind = "misplaced"                // an event of another place stands here
	Damaged   Kind = "damaged"                  // a stored block cannot be read back; nothing after it was read
	Framing   Kind = "framing"                  // a block is not lines of text; nothing after it was read
	Truncated Kind = "truncated"                // the stored head is beyond the end; Seq is the first event that is gone
	Identity  Kind = "identity"                 // the genesis event is of another log
	Plan      Kind = "plan"                     // the counts with which a bulk replay ends are not those of its events
)

// Kinds of findings about stored bytes. Seq is the first event that names them.
const (
	BlobMissing    Kind = "blob_missing"
	BlobCorrupt    Kind = "blob_corrupt"
	BlobShortened  Kind = "blob_shortened"
	BlobReleased   Kind = "blob_released"
	BlobShadowed   Kind = "blob_shadowed"
	BlobUnreadable Kind = "blob_unreadable" // the store did not answer: neither good nor bad
	BlobElsewhere  Kind = "blob_elsewhere"  // the store is not the one that the bytes were put into: nothing was checked
)

// Kinds of findings about the projection.
const (
	State Kind = "state" // it has another event at Seq than the log
	Fold  Kind = "fold"  // it is not what the first Seq events fold to; no event is blamed
)

// tells says whether a finding of this kind is evidence of tampering, or only a limit of what could be checked.
func (k Kind) tells() bool { return k != Newer && k != BlobUnreadable && k != BlobElsewhere }

// Finding is one thing wrong. Detail holds no values beyond numbers, names of members, digests, versions and dates.
type Finding struct {
	Kind   Kind         `json:"kind"`
	Seq    uint64       `json:"seq"`
	Ref    chain.Digest `json:"ref,omitzero"` // the letter's payload, or the bytes concerned; zero if none
	Detail string       `json:"detail"`
}

func (f Finding) String() string { return fmt.Sprintf("event %d: %s: %s", f.Seq, f.Kind, f.Detail) }

// MaxFindings is how many findings a report lists; Total counts all of them.
const MaxFindings = 1000

// Report is what a verification found.
type Report struct {
	Verdict Verdict      `json:"verdict"`
	Events  uint64       `json:"events"` // lines read
	Head    chain.Head   `json:"head"`   // the end of the log
	Root    chain.Digest `json:"root"`   // RFC 6962 tree head of all events; zero when the links are broken
	LogID   string       `json:"log_id"`
	Origin  string       `json:"origin"`
	// Anchored tells that a stored head was given and that the log contains it: events before it were neither cut
	// off nor rewritten since that head was stored.
	Anchored bool                         `json:"anchored"`
	Letters  map[chain.Disposition]uint64 `json:"letters"` // "" counts those whose history is broken beyond telling
	Blobs    uint64                       `json:"blobs"`   // payloads and other stored bytes read and hashed
	Findings []Finding                    `json:"findings"`
	Total    uint64                       `json:"total"`
	Notes    []string                     `json:"notes"` // what was not checked, and why

	first [2]firstSeq // of findings that tell of tampering, and of the others
}

type firstSeq struct {
	seq   uint64
	known bool
}

func (f *firstSeq) meet(seq uint64) {
	if !f.known || seq < f.seq {
		*f = firstSeq{seq, true}
	}
}

// OK tells that nothing was found.
func (r Report) OK() bool { return r.Verdict == OK }

// FirstBad is the first sequence that is not as it was, over all findings, listed or not.
func (r Report) FirstBad() (seq uint64, ok bool) {
	first := r.first[0]
	if !first.known {
		first = r.first[1]
	}
	return first.seq, first.known
}

func (r *Report) add(f Finding) {
	r.Total++
	if f.Kind.tells() {
		r.Verdict = Tampered
		if f.Kind != Fold {
			r.first[0].meet(f.Seq)
		}
	} else {
		if r.Verdict == OK {
			r.Verdict = Unchecked
		}
		r.first[1].meet(f.Seq)
	}
	if len(r.Findings) < MaxFindings {
		r.Findings = append(r.Findings, f)
	}
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Seq, b.Seq) })
}
