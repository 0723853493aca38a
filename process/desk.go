package process

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/deadletter"
	"github.com/holdfast-dvir/holdfast/projection"
)

// DeskConfig is what a Desk stands on.
type DeskConfig struct {
	Queue   *deadletter.Queue
	State   *projection.DB
	Store   *blob.Store
	Routes  *Routes
	Targets []string     // those that workers outside of the service serve
	Log     *slog.Logger // nil means none
}

// Desk is where workers outside of the service come for letters: they lease, beat, and tell what came of it.
//
// A beat stays in memory; the lease is extended by an event only when half of it is gone. A worker whose beats stop is
// gone: if it held this one letter and nothing else all the while, as this process saw, the letter has taken it down and
// is quarantined. Else nobody knows whose fault it was: no attempt is used, and the letter runs alone next. A lease that its
// worker never named may not have reached it: it is given back at no cost.
type Desk struct {
	cfg DeskConfig

	mu    sync.Mutex // owns what follows
	last  time.Time  // look at the leases
	hands map[uint64]*hand
	taken map[chain.Digest]uint64 // size of the log, at which it shows that the letter is leased
	given map[string]int          // leases of a worker that are being recorded; alone for one that must run alone
}

// hand is a lease that is watched, by the seq of its attempt event.
type hand struct {
	job   deadletter.Job
	until time.Time // as recorded
	half  time.Time // a beat after this extends the lease by an event
	over  time.Time // unless it beats before
	sole  bool      // its worker had no other letter since, and was watched from the beginning
	named bool      // by its worker, since it was taken; of a lease that was found, nobody knows
	grows bool      // this process is recording that it goes on
}

func (h *hand) worker() string { return h.job.Letter.Lease.Worker }

// keep notes the recorded deadline, and gives the worker its whole length from now on.
func (h *hand) keep(l chain.Letter, now time.Time) {
	length := l.Lease.Length()
	h.job.Letter, h.until, h.half, h.over = l, l.Lease.Until, now.Add(length/2), now.Add(length)
}

// Bounds of what workers may ask for.
const (
	MinLease   = 5 * time.Second
	MaxLease   = 15 * time.Minute
	MaxWait    = time.Minute
	MaxJobs    = 100
	watchEvery = time.Second
	alone      = -1
	beatGrace  = 2 * time.Second // of a beat on its way
)

// NewDesk prepares a desk; Run watches its leases.
func NewDesk(cfg DeskConfig) *Desk {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Desk{cfg: cfg, hands: map[uint64]*hand{}, taken: map[chain.Digest]uint64{}, given: map[string]int{}}
}

// LeaseID names a lease to workers.
type LeaseID struct {
	Ref chain.Digest
	Seq uint64 // of the attempt event
}

func (id LeaseID) String() string { return id.Ref.String() + "-" + strconv.FormatUint(id.Seq, 10) }

// ParseLeaseID reads what String wrote. The error is a *chain.FieldError.
func ParseLeaseID(s string) (LeaseID, error) {
	ref, seq, _ := strings.Cut(s, "-")
	digest, err := chain.ParseDigest(ref)
	n, bad := strconv.ParseUint(seq, 10, 53)
	if err != nil || bad != nil {
		return LeaseID{}, &chain.FieldError{Field: "lease", Rule: "must be the id of a lease, as it was given"}
	}
	return LeaseID{digest, n}, nil
}

// Worker is who comes to the desk: whom it answers for, and its own name.
type Worker struct{ Actor, Name string }

func (w Worker) prefix() string { return PullPrefix + w.Actor + "/" }

func (w Worker) token() string { return w.prefix() + w.Name }

// LeaseOrder is what a worker asks for.
type LeaseOrder struct {
	Worker  Worker
	Targets []string      // whose letters; none means those of all pull processors
	Max     int           // letters, 1 to MaxJobs; 0 means 1
	Wait    time.Duration // until there is one, at most MaxWait
	For     time.Duration // MinLease to MaxLease; 0 means a minute
}

func (d *Desk) check(o *LeaseOrder) error {
	if o.Max == 0 {
		o.Max = 1
	}
	if o.For == 0 {
		o.For = time.Minute
	}
	if len(o.Targets) == 0 {
		o.Targets = d.cfg.Targets
	}
	switch {
	case !chain.ValidToken(o.Worker.Name) || !chain.ValidToken(o.Worker.token()):
		return &chain.FieldError{Field: "worker", Rule: "must be an identifier, short enough to stand behind the name of the token"}
	case o.Max < 1 || o.Max > MaxJobs:
		return &chain.FieldError{Field: "max", Rule: "must be 1 to 100"}
	case o.Wait < 0 || o.Wait > MaxWait:
		return &chain.FieldError{Field: "wait", Rule: "must be 0s to 60s"}
	case o.For < MinLease || o.For > MaxLease:
		return &chain.FieldError{Field: "lease", Rule: "must be 5s to 15m"}
	case slices.ContainsFunc(o.Targets, func(t string) bool { return !slices.Contains(d.cfg.Targets, t) }), len(o.Targets) == 0:
		return &chain.FieldError{Field: "processors", Rule: "must be names of processors of the kind pull"}
	}
	return nil
}

// Lease gives due letters to a worker, as soon as there are any. A caller who left in the meantime gets nothing.
// Errors: *chain.FieldError, ErrUnavailable, that of ctx.
func (d *Desk) Lease(ctx context.Context, o LeaseOrder) ([]deadletter.Job, error) {
	if err := d.check(&o); err != nil {
		return nil, err
	}
	waited := time.NewTimer(o.Wait)
	defer waited.Stop()
	for {
		changed := d.cfg.State.Changed()
		jobs, next, err := d.take(ctx, o)
		if err != nil || len(jobs) > 0 {
			return jobs, err
		}
		select {
		case <-changed:
		case <-when(next):
		case <-waited.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take leases what is due now, and tells when the next letter will be.
func (d *Desk) take(ctx context.Context, o LeaseOrder) (jobs []deadletter.Job, next time.Time, err error) {
	letters, next, err := d.due(o)
	defer func() { d.forgo(letters) }()
	for _, l := range letters {
		if len(jobs) == o.Max || err != nil || ctx.Err() != nil {
			break
		}
		lost := l.Losses > 0
		if lost && len(jobs) > 0 || !d.may(o.Worker, lost) {
			continue
		}
		job, failed := d.lease(ctx, l, o)
		if _, refused := errors.AsType[*chain.TransitionError](failed); refused || errors.Is(failed, deadletter.ErrStaleLease) {
			continue // somebody else has it
		}
		if err = failed; err != nil {
			break
		}
		jobs = append(jobs, job)
		if lost {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, next, errors.Join(ctx.Err(), d.giveBack(jobs))
	}
	if len(jobs) > 0 {
		err = nil // what is leased is given out; the trouble comes again
	}
	return jobs, next, err
}

// due lists letters for o that nobody here is about to lease, and marks them so.
func (d *Desk) due(o LeaseOrder) (fresh []chain.Letter, next time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg.Store.Healthy() != nil {
		return nil, time.Now().Add(storePause), nil
	}
	folded := d.cfg.State.Tip().Size
	maps.DeleteFunc(d.taken, func(_ chain.Digest, size uint64) bool { return size <= folded })
	pick := func(k projection.Kind) bool { return slices.Contains(o.Targets, d.cfg.Routes.Target(k)) }
	letters, next, err := d.cfg.State.Due(time.Now(), pick, len(d.taken)+2*o.Max)
	for _, l := range letters {
		if _, known := d.taken[l.Ref]; !known {
			d.taken[l.Ref] = running
			fresh = append(fresh, l)
		}
	}
	return fresh, next, err
}

// forgo takes the mark off letters that were not leased.
func (d *Desk) forgo(letters []chain.Letter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range letters {
		if d.taken[l.Ref] == running {
			delete(d.taken, l.Ref)
		}
	}
}

// may tells whether the worker can have another letter, and then counts it as given until lease has recorded it: one that
// was lost goes to who has none, and who has such a one gets no other.
func (d *Desk) may(w Worker, lost bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	given := d.given[w.token()]
	if given == alone || lost && given > 0 {
		return false
	}
	for _, h := range d.hands {
		if h.worker() == w.token() && (lost || h.job.Letter.Lease.Alone) {
			return false
		}
	}
	if d.given[w.token()]++; lost {
		d.given[w.token()] = alone
	}
	return true
}

// recorded ends what may began.
func (d *Desk) recorded(w Worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.given[w.token()]--; d.given[w.token()] <= 0 {
		delete(d.given, w.token())
	}
}

// watch notes a lease. Whoever has several is blamed for none of them.
func (d *Desk) watch(h *hand) {
	lease := h.job.Letter.Lease.Seq
	for seq, other := range d.hands {
		if seq != lease && other.worker() == h.worker() {
			other.sole, h.sole = false, false
		}
	}
	d.hands[lease] = h
}

// lease takes the letter for the worker and watches it. The lease is not forgotten if ctx ends half-way.
func (d *Desk) lease(ctx context.Context, l chain.Letter, o LeaseOrder) (deadletter.Job, error) {
	defer d.recorded(o.Worker)
	asking, cancel := lasting(ctx)
	defer cancel()
	job, err := d.cfg.Queue.Lease(asking, l.Ref, o.Worker.token(), o.For)
	if err != nil {
		return deadletter.Job{}, err
	}
	d.mu.Lock()
	d.taken[l.Ref] = job.Letter.LastSeq + 1
	h := &hand{job: job, sole: true}
	h.keep(job.Letter, time.Now())
	d.watch(h)
	d.mu.Unlock()
	if job.Letter.Lease.Alone && l.Losses == 0 { // it was lost a moment ago
		return deadletter.Job{}, errors.Join(deadletter.ErrStaleLease, d.giveBack([]deadletter.Job{job}))
	}
	return job, nil
}

// giveBack releases what nobody came to know of.
func (d *Desk) giveBack(jobs []deadletter.Job) (err error) {
	for _, job := range jobs {
		err = errors.Join(err, insist(context.Background(), func(ctx context.Context) error { return d.cfg.Queue.Release(ctx, job) }))
		d.drop(job.Letter.Lease.Seq)
	}
	return err
}

func (d *Desk) drop(lease uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.hands, lease)
}
