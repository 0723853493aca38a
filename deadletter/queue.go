package deadletter

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dvir/holdfast/blob"
	"github.com/holdfast-dvir/holdfast/chain"
	"github.com/holdfast-dvir/holdfast/projection"
)

// Config is what a Queue stands on.
type Config struct {
	Log   chain.Log
	Store *blob.Store
	State *projection.DB

	Anchor   chain.Head // a head stored outside the log, which the log must contain; zero means none
	Origin   string     // of a new log, e.g. "holdfast.example/acme"
	Software string     // version, for the genesis event

	MaxRetries uint64         // retries after the first try; 0 means 5
	MaxReplays uint64         // replays before a letter is parked; 0 means 5
	Jitter     func() float64 // in [0,1); nil means none, for tests
	Codes      []string       // error codes of processors, accepted from senders
	Vocabulary []string       // words of the contract, never personal data: not masked in error texts

	Node   string                    // this instance, over restarts: whose plans it carries out; "" means "node"
	Target func(chain.Letter) string // the processor that a letter goes to, pure; nil means that all go to "builtin"
}

// Queue is the dead-letter queue of one process. Its methods may be called from any goroutine while Run runs.
type Queue struct {
	cfg      Config
	codes    map[string]bool
	words    map[string]bool
	requests chan *request
	ended    chan struct{} // closed when Run is over: nothing is appended any more
	holding  sync.Mutex    // of orders about retention, one after another
	unsure   atomic.Bool   // an append is unknown: refuse quickly until the log has told
	size     atomic.Uint64 // of the log as far as this queue knows it
	// unclassified counts failures by stage; its keys never change.
	unclassified map[chain.Stage]*atomic.Uint64

	// Owned by Run, and by Open before it.
	tip    chain.Tip
	logID  string
	recent overlay // what the projection may not have folded yet
}

// request is one decision waiting to be taken, and its answer.
type request struct {
	ctx    context.Context
	decide func(*view) (chain.Event, error)
	record chain.Record
	err    error
	done   chan struct{}
}

// Bounds of the queue's memory.
const (
	maxWaiting = 4 * chain.MaxBlockEvents // decisions waiting for the appender
	maxLag     = 200_000                  // events the projection may be behind before appends wait for it
	appendFor  = 10 * time.Second         // how long one append may stay unclear before callers are told
)

// Open prepares a queue over a log, brings the projection up to date and, in an empty log, writes the genesis
// event. It returns ErrDiverged if log and projection do not belong together.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	if cfg.MaxRetries == 0 {
		cfg.MaxRetries = 5
	}
	if cfg.MaxReplays == 0 {
		cfg.MaxReplays = 5
	}
	if cfg.Node == "" {
		cfg.Node = "node"
	}
	if cfg.Target == nil {
		cfg.Target = func(chain.Letter) string { return "builtin" }
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 0 }
	}
	q := &Queue{cfg: cfg, codes: set(cfg.Codes), words: set(cfg.Vocabulary),
		requests: make(chan *request, maxWaiting), ended: make(chan struct{}), recent: newOverlay(),
		unclassified: map[chain.Stage]*atomic.Uint64{}}
	for _, stage := range chain.Stages {
		q.unclassified[stage] = new(atomic.Uint64)
	}
	if err := q.agree(ctx); err != nil {
		return nil, err
	}
	if err := cfg.State.CatchUp(ctx, cfg.Log); err != nil {
		return nil, fmt.Errorf("fold the log: %w", err)
	}
	q.moveTo(cfg.State.Tip())
	if err := q.contains(cfg.Anchor); err != nil {
		return nil, err
	}
	return q, q.begin(ctx)
}

// contains checks that the log has not lost what it held when anchor was stored.
func (q *Queue) contains(anchor chain.Head) error {
	switch {
	case anchor.Size == 0:
		return nil
	case q.tip.Size < anchor.Size:
		return fmt.Errorf("the log has %d events where it had %d: %w", q.tip.Size, anchor.Size, ErrDiverged)
	}
	lines, err := q.cfg.State.Events(anchor.Size-1, 1)
	if err != nil {
		return err
	}
	if len(lines) == 1 && chain.LeafHash(lines[0]) == anchor.Leaf {
		return nil
	}
	return fmt.Errorf("event %d is not the one that was stored: %w", anchor.Size-1, ErrDiverged)
}

func set(words []string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}

// agree compares the last block that the projection folded with what stands at its place in the log.
func (q *Queue) agree(ctx context.Context) error {
	tip := q.cfg.State.Tip()
	if tip.Size == 0 {
		return nil
	}
	for block, err := range q.cfg.Log.Read(ctx, tip.Position-1) {
		if err != nil {
			return err
		}
		last := block.Lines[len(block.Lines)-1]
		if block.Position != tip.Position || chain.LeafHash(last) != tip.Leaf {
			break
		}
		return nil
	}
	return ErrDiverged
}

// begin writes the genesis event of an empty log, or learns the log's identity.
func (q *Queue) begin(ctx context.Context) error {
	if g, ok := q.cfg.State.Genesis(); ok {
		q.logID = g.LogID
		return nil
	}
	var id [16]byte
	rand.Read(id[:])
	genesis := chain.Event{Type: chain.TypeGenesis, At: time.Now(), Actor: "holdfast",
		Origin: q.cfg.Origin, LogID: hex.EncodeToString(id[:]), Software: q.cfg.Software}
	record, err := chain.Head{}.Seal(genesis)
	if err != nil {
		return err
	}
	_, err = q.cfg.Log.Append(ctx, 0, [][]byte{record.Raw})
	if err != nil && !errors.Is(err, chain.ErrConflict) {
		return fmt.Errorf("write the genesis event: %w", err)
	}
	if err := q.cfg.State.CatchUp(ctx, q.cfg.Log); err != nil {
		return err
	}
	g, ok := q.cfg.State.Genesis()
	if !ok {
		return fmt.Errorf("write the genesis event: %w", ErrDiverged)
	}
	q.logID = g.LogID
	q.moveTo(q.cfg.State.Tip())
	return nil
}

func (q *Queue) moveTo(tip chain.Tip) {
	q.tip = tip
	q.size.Store(tip.Size)
}

// Size is how many events the log has, as far as this queue knows: all that it has acknowledged are among them.
func (q *Queue) Size() uint64 { return q.size.Load() }

// LogID is the random identity of the log, from its genesis event.
func (q *Queue) LogID() string { return q.logID }

// Run appends decisions until ctx is done or a broken event forbids to go on. It runs once. Requests still
// waiting then, and all later ones, fail with ErrUnavailable.
func (q *Queue) Run(ctx context.Context) error {
	defer close(q.ended)
	for {
		batch, err := q.gather(ctx)
		if err == nil {
			err = q.commit(ctx, batch)
		}
		if err != nil {
			return err
		}
	}
}

// gather waits for one request and takes whatever else is waiting, without lingering.
func (q *Queue) gather(ctx context.Context) ([]*request, error) {
	var batch []*request
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-q.requests:
		batch = append(batch, r)
	}
	for len(batch) < chain.MaxBlockEvents {
		select {
		case r := <-q.requests:
			batch = append(batch, r)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// commit decides and appends batch, in as many blocks as it needs, and answers every request.
func (q *Queue) commit(ctx context.Context, batch []*request) error {
	for len(batch) > 0 {
		if err := q.prune(ctx); err != nil {
			refuse(batch)
			return err
		}
		b := q.decide(batch)
		if len(b.lines) == 0 {
			answer(b.taken)
			batch = batch[len(b.taken):]
			continue
		}
		position, err := q.append(ctx, b.lines)
		switch {
		case err == nil:
			q.moveTo(chain.Tip{Head: b.view.head, Position: position})
			q.recent.merge(b.view.local)
			answer(b.taken)
			batch = batch[len(b.taken):]
		case errors.Is(err, chain.ErrConflict):
			if err := q.catchUp(ctx); err != nil {
				refuse(batch)
				return err
			}
		default:
			refuse(batch)
			return q.recover(ctx)
		}
	}
	return nil
}

func (q *Queue) append(ctx context.Context, lines [][]byte) (chain.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, appendFor)
	defer cancel()
	return q.cfg.Log.Append(ctx, q.tip.Position, lines)
}

// recover reads the log until it tells how far it goes. The block whose fate was unknown is then either part of
// what was read, or can land only at a place that the next append claims with compare-and-swap.
func (q *Queue) recover(ctx context.Context) error {
	q.unsure.Store(true)
	defer q.unsure.Store(false)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := q.catchUp(ctx)
		var broken *chain.BrokenError
		if err == nil || errors.As(err, &broken) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// catchUp folds the blocks that others appended since tip. A broken event ends the queue: nothing may be built
// on it.
func (q *Queue) catchUp(ctx context.Context) error {
	for block, err := range q.cfg.Log.Read(ctx, q.tip.Position) {
		if err != nil {
			return err
		}
		v := q.view()
		for _, line := range block.Lines {
			record, err := v.head.Check(line)
			if err == nil {
				err = v.fold(record)
			}
			if err != nil {
				return fmt.Errorf("fold block %d: %w", block.Position, err)
			}
		}
		q.moveTo(chain.Tip{Head: v.head, Position: block.Position})
		q.recent.merge(v.local)
	}
	return nil
}

// prune forgets what the projection has folded, and waits for a projection that is too far behind.
func (q *Queue) prune(ctx context.Context) error {
	folded := q.cfg.State.Tip().Size
	if q.tip.Size > folded+maxLag {
		if err := q.cfg.State.Wait(ctx, q.tip.Size-maxLag/2); err != nil {
			return err
		}
	}
	q.recent.forget(folded)
	return nil
}

// answer gives every request what was decided.
func answer(taken []*request) {
	for _, r := range taken {
		close(r.done)
	}
}

// refuse takes back whatever was decided for batch, refusals too: they may rest on events that are not stored.
func refuse(batch []*request) {
	for _, r := range batch {
		r.record, r.err = chain.Record{}, ErrUnavailable
		close(r.done)
	}
}

// do has decide taken at the head and returns the record it led to. decide may run several times and must do
// nothing but look at the view; an event without a type means that nothing is to be recorded.
func (q *Queue) do(ctx context.Context, decide func(*view) (chain.Event, error)) (chain.Record, error) {
	if q.unsure.Load() {
		return chain.Record{}, ErrUnavailable
	}
	r := &request{ctx: ctx, decide: decide, done: make(chan struct{})}
	select {
	case q.requests <- r:
	case <-q.ended:
		return chain.Record{}, ErrUnavailable
	case <-ctx.Done():
		return chain.Record{}, ctx.Err()
	}
	return q.await(ctx, r)
}

// await waits for the answer to r. An answer that is there counts, even if Run has ended.
func (q *Queue) await(ctx context.Context, r *request) (chain.Record, error) {
	select {
	case <-r.done:
		return r.record, r.err
	case <-ctx.Done():
		return chain.Record{}, ctx.Err()
	case <-q.ended:
	}
	select {
	case <-r.done:
		return r.record, r.err
	default:
		return chain.Record{}, ErrUnavailable
	}
}
