package projection

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
)

// CatchUp folds what r holds after the tip at the time of the call. Errors are those of Apply, of r and of ctx.
func (db *DB) CatchUp(ctx context.Context, r chain.Reader) error {
	return db.run(ctx, r.Read, func() <-chan time.Time { return nil })
}

// Follow folds what r holds after the tip and then what arrives, until ctx is done, and returns its error; or until
// the first broken event. What has arrived is gathered and committed together: at once when somebody is in Wait or
// a few thousand events are there, else when Pause has passed since the commit before.
func (db *DB) Follow(ctx context.Context, r chain.Reader) error {
	return db.run(ctx, r.Follow, func() <-chan time.Time { return time.After(db.Pause) })
}

// run reads and checks in one goroutine and folds in its own.
func (db *DB) run(ctx context.Context, blocks func(context.Context, chain.Position) iter.Seq2[chain.Block, error],
	pause func() <-chan time.Time) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	from := db.at()
	in := &inbox{limit: db.gather, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	in.next.base, in.end = from, from
	read := make(chan struct{})
	go func() {
		defer close(read)
		in.fill(ctx, blocks(ctx, from.Position))
	}()
	defer func() { cancel(); <-read }()
	for {
		b, err := db.wait(ctx, in, pause())
		if err == nil {
			err = cmp.Or(db.commit(b), b.err)
		}
		if err != nil || b.last {
			return err
		}
		in.reuse(b)
	}
}

// wait is the next batch: once something is there, and the pause is over or nothing speaks for it.
func (db *DB) wait(ctx context.Context, in *inbox, over <-chan time.Time) (*batch, error) {
	select {
	case <-in.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for !in.full() && !db.hurried() {
		select {
		case <-over:
			return in.take(), nil
		case <-db.hurry:
		case <-in.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return in.take(), nil
}

func (db *DB) hurried() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.waiting > 0
}

// inbox holds what is read and checked and not yet folded. One goroutine fills it, another takes all there is.
type inbox struct {
	limit int
	ready chan struct{} // something was put
	room  chan struct{} // everything was taken

	end  mark  // how far was read; of the filling side, as is part
	part batch // one block

	mu   sync.Mutex // guards what follows
	next batch
	free []chain.Record // of a batch that is folded: records are large, growing the slice would cost more than folding
}

func (in *inbox) fill(ctx context.Context, blocks iter.Seq2[chain.Block, error]) {
	for block, err := range blocks {
		if err == nil {
			err = in.put(ctx, block)
		}
		if err != nil {
			in.finish(err)
			return
		}
	}
	in.finish(nil)
}

// put checks block without holding anybody up, and waits when the inbox is full.
func (in *inbox) put(ctx context.Context, block chain.Block) error {
	in.part.records, in.part.ends = in.part.records[:0], in.part.ends[:0]
	err := in.part.read(&in.end, block)
	for in.full() {
		select {
		case <-in.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	in.mu.Lock()
	had := len(in.next.records)
	in.next.records = append(in.next.records, in.part.records...)
	for _, end := range in.part.ends {
		in.next.ends = append(in.next.ends, blockEnd{had + end.records, end.position})
	}
	in.mu.Unlock()
	signal(in.ready)
	return err
}

func (in *inbox) finish(err error) {
	in.mu.Lock()
	in.next.last, in.next.err = true, err
	in.mu.Unlock()
	signal(in.ready)
}

func (in *inbox) full() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.next.records) >= in.limit || in.next.last
}

func (in *inbox) take() *batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	b := in.next
	in.next = batch{base: b.at(len(b.records)), records: in.free}
	in.free = nil
	signal(in.room)
	return &b
}

func (in *inbox) reuse(b *batch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.free = b.records[:0]
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (db *DB) at() mark {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mark
}

// advance announces a commit.
func (db *DB) advance(to mark, b *batch) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.genesis == nil && to.Size > 0 {
		genesis := b.records[0].Event
		db.genesis = &genesis
	}
	db.mark = to
	close(db.changed)
	db.changed = make(chan struct{})
}

// Changed is closed by the next commit. Take it first and look afterwards, else a change is missed.
func (db *DB) Changed() <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.changed
}

// Wait returns when event seq is committed, so that who appended it reads what it did. It needs somebody to
// follow the log; errors are those of ctx and ErrClosed.
func (db *DB) Wait(ctx context.Context, seq uint64) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.waiting++
	defer func() { db.waiting-- }()
	for db.mark.Size <= seq {
		changed := db.changed
		db.mu.Unlock()
		signal(db.hurry)
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = fmt.Errorf("wait for event %d: %w", seq, ctx.Err())
		case <-db.done:
			err = ErrClosed
		}
		if db.mu.Lock(); err != nil {
			return err
		}
	}
	return nil
}
