package projection

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
	"golang.org/x/mod/sumdb/tlog"
)

// batch is what one transaction folds: checked events, and where the blocks that brought them end.
type batch struct {
	base    mark
	records []chain.Record
	ends    []blockEnd
	err     error // what is wrong after the last record, or ended the reading
	last    bool  // nothing follows
}

type blockEnd struct {
	records  int // of the batch, up to here
	position chain.Position
}

// read checks the events of block that are not in yet and adds them. m goes as far as they are right.
func (b *batch) read(m *mark, block chain.Block) error {
	if block.Position <= m.Position || uint64(len(block.Lines)) < m.partial {
		return errors.New("projection: the log gave a block again, or a shorter one")
	}
	for _, line := range block.Lines[m.partial:] {
		r, err := m.Check(line)
		if err != nil {
			return err
		}
		b.records = append(b.records, r)
		m.Head = r.Head()
		m.partial++
	}
	m.Position, m.partial = block.Position, 0
	b.ends = append(b.ends, blockEnd{len(b.records), block.Position})
	return nil
}

// at is the mark after the first n records of the batch, and after every block that they complete.
func (b *batch) at(n int) mark {
	m := b.base
	m.partial += uint64(n)
	if n > 0 {
		m.Head = b.records[n-1].Head()
	}
	for _, end := range b.ends {
		if end.records <= n {
			m.Position, m.partial = end.position, uint64(n-end.records)
		}
	}
	return m
}

// Apply folds blocks that follow the tip: all of them, or those events that precede the first broken one. What is
// folded is durable when Apply returns. The error is the *chain.BrokenError of that event, or says why nothing
// was folded.
func (db *DB) Apply(blocks []chain.Block) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	m := db.at()
	b := &batch{base: m}
	for _, block := range blocks {
		if b.err = b.read(&m, block); b.err != nil {
			break
		}
	}
	return cmp.Or(db.commit(b), b.err)
}

// commit folds b in one transaction and announces it. The error of a letter's step comes back after what precedes
// it is in.
func (db *DB) commit(b *batch) error {
	if b.at(len(b.records)) == b.base {
		return nil
	}
	var to mark
	var broken error
	err := db.update(func(tx *bbolt.Tx) error {
		if stored, ok := readMark(tx); !ok || stored != b.base {
			return damage("its mark is not where this process left it")
		}
		f, err := newFold(tx, b, cmp.Or(db.far, newScattered(1)))
		if err != nil {
			return err
		}
		n := 0
		for ; n < len(b.records) && broken == nil; n++ {
			if err := f.add(&b.records[n]); err != nil {
				if broken = asBroken(b.records[n].Seq, err); broken == nil {
					return err
				}
				n--
			}
		}
		to = b.at(n)
		return cmp.Or(f.write(), writeMark(tx, to))
	})
	if err != nil {
		return err
	}
	db.advance(to, b)
	return broken
}

// asBroken tells a step the lifecycle does not have from trouble of ours, for which it is nil.
func asBroken(seq uint64, err error) error {
	if _, ok := errors.AsType[*chain.TransitionError](err); ok {
		return &chain.BrokenError{Seq: seq, Kind: chain.BreakLifecycle, Err: err}
	}
	if _, ok := errors.AsType[*chain.FieldError](err); ok {
		return &chain.BrokenError{Seq: seq, Kind: chain.BreakField, Err: err}
	}
	return nil
}

// fold gathers the effects of many events on a transaction; write writes their sum, each bucket in key order.
type fold struct {
	tx       *bbolt.Tx
	letters  map[chain.Digest]*touched
	plans    map[string]chain.Plan
	events   []*chain.Record
	timeline []step
	notices  [][]byte
	far      *scattered
	refs     *bbolt.Cursor
	stored   *bbolt.Bucket
	hashes   newHashes
}

type touched struct {
	before []place // none when the letter is new
	after  chain.Letter
	text   []byte // of after
}

func newFold(tx *bbolt.Tx, b *batch, far *scattered) (*fold, error) {
	tree, err := newHashesAt(b.base.Size, hashes{tx.Bucket(bucketHashes)})
	tree.new = make([]tlog.Hash, 0, 2*len(b.records))
	return &fold{
		tx: tx, letters: map[chain.Digest]*touched{}, plans: map[string]chain.Plan{}, far: far, refs: tx.Bucket(bucketRefs).Cursor(),
		stored: tx.Bucket(bucketLetters), hashes: tree,
		events: make([]*chain.Record, 0, len(b.records)), timeline: make([]step, 0, len(b.records)),
	}, err
}

// add folds one event. It changes nothing when it fails.
func (f *fold) add(r *chain.Record) error {
	e := &r.Event
	if !e.Type.OfLetter() {
		if err := f.planned(r); err != nil {
			return err
		}
		f.notices = append(f.notices, append(textGroup(string(e.Type)), number(r.Seq)...))
		f.events = append(f.events, r)
		return nil
	}
	t, err := f.letter(e.PayloadRef)
	if err != nil {
		return err
	}
	after, err := t.after.Apply(*r)
	if err == nil {
		err = f.planned(r)
	}
	if err != nil {
		return err
	}
	t.after = after
	f.timeline = append(f.timeline, step{after.FirstSeq, e.CaseSeq, r.Seq})
	f.far.note(r)
	f.events = append(f.events, r)
	return nil
}

// admits is the record version that e brings into being, if it is the first.
func admits(e *chain.Event) (version chain.Digest, ok bool) {
	admitted := e.Outcome == chain.Admit || e.Outcome == chain.AdmitWithWarning
	return e.RecordVersion, e.Type == chain.TypeResolved && admitted && !e.RecordVersion.IsZero()
}

// reports is the vehicle whose latest record e names.
func reports(e *chain.Event) (unit chain.Digest, ok bool) {
	return e.UnitKey, e.Type == chain.TypeResolved && !e.RecordRef.IsZero() && !e.UnitKey.IsZero()
}

// letter is the letter as this transaction has it; one that does not exist yet is the zero letter.
func (f *fold) letter(ref chain.Digest) (*touched, error) {
	if t := f.letters[ref]; t != nil {
		return t, nil
	}
	t := &touched{}
	if key := f.key(ref); key != nil {
		l, err := parseLetter(f.stored.Get(key))
		if err != nil {
			return nil, err
		}
		t.before, t.after = places(&l), l
	}
	f.letters[ref] = t
	return t, nil
}

// key is where the letter is stored, nil when it is not.
func (f *fold) key(ref chain.Digest) []byte {
	if n, ok := f.far.of(ref[0]).refs[ref]; ok {
		return number(n)
	}
	if k, n := f.refs.Seek(ref[:]); bytes.Equal(k, ref[:]) {
		return n
	}
	return nil
}

func parseLetter(raw []byte) (chain.Letter, error) {
	if raw == nil {
		return chain.Letter{}, damage("a letter is missing")
	}
	l, err := chain.ParseLetter(raw)
	if err != nil || !l.Exists() {
		return chain.Letter{}, damage("a letter cannot be read")
	}
	return l, nil
}

func (f *fold) write() error {
	changed := slices.Collect(maps.Values(f.letters))
	changed = slices.DeleteFunc(changed, func(t *touched) bool { return !t.after.Exists() })
	var moves []move
	prepared := make(chan error, 1) // a part of the work needs no transaction
	go func() {
		slices.SortFunc(changed, func(a, b *touched) int { return cmp.Compare(a.after.FirstSeq, b.after.FirstSeq) })
		for _, r := range f.events {
			f.hashes.add(r.Leaf)
		}
		var err error
		moves, err = prepare(changed)
		prepared <- err
	}()
	err := cmp.Or(f.writeEvents(), f.writeTimeline())
	if err = cmp.Or(<-prepared, err); err != nil {
		return err
	}
	return cmp.Or(f.hashes.write(), f.writeLetters(changed), f.writePlaces(moves), f.writePlans(), f.far.write(f.tx))
}

// writeEvents appends: those buckets are filled to the brim, since nothing is ever put in between.
func (f *fold) writeEvents() error {
	events, notices := f.tx.Bucket(bucketEvents), f.tx.Bucket(bucketNotices)
	events.FillPercent = 1
	for _, r := range f.events {
		if err := events.Put(number(r.Seq), r.Raw); err != nil {
			return err
		}
	}
	for _, key := range f.notices {
		if err := notices.Put(key, nil); err != nil {
			return err
		}
	}
	return nil
}

// step is an event of a letter in its timeline.
type step struct{ number, caseSeq, seq uint64 }

// stepsPerKey bounds what one more event of a letter writes anew.
const stepsPerKey = 64

func (s step) key() [16]byte {
	return [16]byte(append(number(s.number), number(s.caseSeq/stepsPerKey)...))
}

// writeTimeline adds the steps to their letters.
func (f *fold) writeTimeline() error {
	bucket := f.tx.Bucket(bucketTimeline)
	bucket.FillPercent = 0.9
	slices.SortFunc(f.timeline, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.seq, b.seq))
	})
	for rest := f.timeline; len(rest) > 0; {
		first, n := rest[0], 1
		for n < len(rest) && rest[n].key() == first.key() {
			n++
		}
		key, had := first.key(), int(first.caseSeq%stepsPerKey)
		seqs := make([]byte, 0, 8*(had+n))
		if had > 0 {
			seqs = append(seqs, bucket.Get(key[:])...)
		}
		if len(seqs) != 8*had {
			return damage("a timeline does not end where its letter does")
		}
		for _, s := range rest[:n] {
			seqs = binary.BigEndian.AppendUint64(seqs, s.seq)
		}
		if err := bucket.Put(key[:], seqs); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (f *fold) writeLetters(changed []*touched) error {
	f.stored.FillPercent = 0.9
	for _, t := range changed {
		if err := f.stored.Put(number(t.after.FirstSeq), t.text); err != nil {
			return err
		}
		if len(t.before) == 0 {
			f.far.of(t.after.Ref[0]).refs[t.after.Ref] = t.after.FirstSeq
		}
	}
	return nil
}

// move is an entry that came (1) or went (-1).
type move struct {
	place
	by int
}

// prepare encodes the letters and lists their moves in the order of the buckets.
func prepare(changed []*touched) (moves []move, err error) {
	moves = make([]move, 0, 4*len(changed))
	for _, t := range changed {
		if t.text, err = t.after.AppendText(make([]byte, 0, 1024)); err != nil {
			return nil, err
		}
		moves = t.moves(moves)
	}
	slices.SortFunc(moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.key, b.key))
	})
	return moves, nil
}

// writePlaces moves the letters in the indexes: only entries that came or went are touched.
func (f *fold) writePlaces(moves []move) error {
	counts := map[string]int{}
	var bucket *bbolt.Bucket
	for i, m := range moves {
		if m.index == byUnit {
			f.far.move(m)
			continue
		}
		if i == 0 || m.index != moves[i-1].index {
			bucket = f.tx.Bucket(indexes[m.index].bucket)
		}
		if indexes[m.index].counted {
			counts[m.counter()] += m.by
		}
		if err := m.write(bucket); err != nil {
			return err
		}
	}
	return f.writeCounts(counts)
}

// moves appends what changed between the letter before and after.
func (t *touched) moves(all []move) []move {
	after := places(&t.after)
	for _, p := range t.before {
		if !slices.Contains(after, p) {
			all = append(all, move{p, -1})
		}
	}
	for _, p := range after {
		if !slices.Contains(t.before, p) {
			all = append(all, move{p, 1})
		}
	}
	return all
}

func (m move) write(bucket *bbolt.Bucket) error {
	if m.by > 0 {
		return bucket.Put([]byte(m.key), nil)
	}
	return bucket.Delete([]byte(m.key))
}

func (f *fold) writeCounts(counts map[string]int) error {
	counters := f.tx.Bucket(bucketCounters)
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		n := count(counters, key) + uint64(counts[key])
		err := error(nil)
		switch {
		case int64(n) < 0:
			return damage("a counter is too small")
		case n == 0:
			err = counters.Delete([]byte(key))
		case counts[key] != 0:
			err = counters.Put([]byte(key), number(n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func count(counters *bbolt.Bucket, key string) uint64 {
	if v := counters.Get([]byte(key)); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}
