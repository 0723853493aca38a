// Package projection holds the current state of the log in one bbolt file: every letter, the indexes over them,
// the raw events, and the hashes of the Merkle tree.
//
// # What it promises
//
// The file is the fold of a prefix of the log and of nothing else. One transaction moves everything together with
// the mark that says which prefix it is, so a crash leaves an older state, never a mixed one, and following goes on
// from the mark. The mark never goes back. Batches do not show: the same events give the same Fingerprint however
// they were gathered.
//
// The file is disposable. Whatever is wrong with it is answered with *UnusableError, and the remedy is always the
// same: remove it and follow from zero, or Rebuild. Check proves the whole file against the raw events it holds.
//
// # What is in the file
//
// All numbers are big-endian, so that keys sort by them. A letter's number is the seq of its first event; it is
// eight bytes long and grows with age, so letters, timelines and indexes are written near where they were last
// written, and only refs sees keys in random order. A rank is a letter's time in microseconds and its number.
//
//	meta      schema; mark (size, leaf, position, events of the block after position)
//	events    seq -> the event as stored in the log
//	hashes    n -> stored hashes 16n to 16n+15 of golang.org/x/mod/sumdb/tlog
//	letters   number -> chain.Letter as text
//	refs      payload_ref -> number
//	timeline  number, n -> seqs of the events 64n to 64n+63 of a letter
//	notices   type, 0, seq -> nothing: the events that belong to no letter
//	records   record_version -> seq of the first resolved event that admitted it
//	units     unit_key -> seq of the last resolved event with a record
//	plans     0, id -> chain.Plan as text; 1, id -> nothing: those that are running
//	counters  index, group -> number of entries
//	by_...    group, rank -> nothing: the indexes, see places
//
// # Reading
//
// Every method reads a snapshot of its own. Bolt cannot reuse pages while an older snapshot is read, so the long
// readers, Check and Fingerprint, let the file of a busy follower grow; nothing else is long. The file is locked by
// the process that has it open.
package projection

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-dvir/holdfast/chain"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Errors.
var (
	// ErrLocked: another process, or another DB of this one, has the file open.
	ErrLocked = errors.New("the projection file is in use")
	// ErrClosed: the DB was closed.
	ErrClosed = errors.New("the projection is closed")
	// ErrNotFound: no such letter, or an event beyond the tip.
	ErrNotFound = errors.New("not found in the projection")
)

// UnusableError says that the file is damaged or of another schema. The caller removes it and folds the log anew.
type UnusableError struct {
	Path string
	Why  string
}

func (e *UnusableError) Error() string { return "projection " + e.Path + " is unusable: " + e.Why }

// DB is an open projection. All methods may be used at the same time; of Apply, CatchUp and Follow one at a time
// writes.
type DB struct {
	// Pause is the least time between two commits of Follow while nobody is in Wait; it keeps the projection's
	// fsyncs out of the way of the log's. Open sets 100 ms. Not to be changed while following.
	Pause time.Duration

	bolt   *bbolt.DB
	path   string
	gather int        // events of one transaction, about
	far    *scattered // of a rebuild

	writing sync.Mutex    // held while folding
	hurry   chan struct{} // somebody began to wait
	done    chan struct{} // closed by Close

	mu      sync.Mutex // guards what follows
	mark    mark
	genesis *chain.Event
	changed chan struct{} // closed and replaced by every commit
	waiting int           // calls of Wait under way
	closed  bool
}

// Open opens the projection at path and creates it if there is none. Errors are ErrLocked, *UnusableError and
// those of the file system.
func Open(path string) (*DB, error) { return open(path, false) }

// OpenReadOnly opens an existing projection for reading; several processes may do so while none writes.
func OpenReadOnly(path string) (*DB, error) { return open(path, true) }

func open(path string, readOnly bool) (*DB, error) {
	db := &DB{
		Pause: 100 * time.Millisecond, path: path, gather: 5000,
		hurry: make(chan struct{}, 1), done: make(chan struct{}), changed: make(chan struct{}),
	}
	var err error
	if db.bolt, err = openBolt(path, readOnly); err != nil {
		return nil, err
	}
	if !readOnly {
		err = db.create()
	}
	if err == nil {
		err = db.load()
	}
	if err != nil {
		return nil, errors.Join(err, db.bolt.Close())
	}
	return db, nil
}

// openBolt maps 16 GiB of address space at once where addresses are long enough: growing the map later would
// wait for every reader.
func openBolt(path string, readOnly bool) (b *bbolt.DB, err error) {
	var file *os.File
	opts := &bbolt.Options{
		Timeout: time.Nanosecond, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
		InitialMmapSize: math.MaxInt >> 29,
		OpenFile: func(name string, flag int, mode fs.FileMode) (f *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	}
	err = guarded(path, func() (err error) { b, err = bbolt.Open(path, 0o600, opts); return err })
	if err == nil {
		return b, nil
	}
	if _, panicked := errors.AsType[*UnusableError](err); panicked {
		// The map that bolt leaves behind keeps the lock alive beyond the closing of the file.
		return nil, errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
	}
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, ErrLocked
	}
	if _, system := errors.AsType[*fs.PathError](err); system {
		return nil, err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.Mode().IsRegular() {
		return nil, &UnusableError{path, err.Error()} // what bolt says of a file without valid meta pages
	}
	return nil, err
}

// create lays out an empty file and leaves any other alone.
func (db *DB) create() error {
	empty := false
	err := db.view(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		empty = first == nil
		return nil
	})
	if err != nil || !empty {
		return err
	}
	return db.update(create)
}

// load reads the mark and tells a whole file from a damaged one as far as a glance can.
func (db *DB) load() error {
	return db.view(func(tx *bbolt.Tx) error {
		info, err := os.Stat(db.path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return db.unusable("the file is cut short")
		}
		if why := schemaOf(tx); why != "" {
			return db.unusable(why)
		}
		m, ok := readMark(tx)
		if !ok {
			return db.unusable("it has no mark")
		}
		if db.mark = m; m.Size == 0 {
			return nil
		}
		last := tx.Bucket(bucketEvents).Get(number(m.Size - 1))
		if last == nil || chain.LeafHash(last) != m.Leaf {
			return db.unusable("its last event is not the one its mark names")
		}
		first, err := event(tx, 0)
		if err != nil || first.Event.Type != chain.TypeGenesis {
			return db.unusable("its first event is not a genesis")
		}
		db.genesis = &first.Event
		return nil
	})
}

// Close ends the DB. It waits for readers and for a transaction under way; whoever is in Wait gets ErrClosed.
func (db *DB) Close() error {
	db.mu.Lock()
	first := !db.closed
	db.closed = true
	db.mu.Unlock()
	if first {
		close(db.done)
	}
	return db.bolt.Close()
}

// Tip is the end of what is committed.
func (db *DB) Tip() chain.Tip {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.mark.Tip
}

// Genesis is the log's first event, once it is committed.
func (db *DB) Genesis() (chain.Event, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.genesis == nil {
		return chain.Event{}, false
	}
	return *db.genesis, true
}

func (db *DB) view(f func(*bbolt.Tx) error) error {
	return db.plain(guarded(db.path, func() error { return db.bolt.View(f) }))
}

func (db *DB) update(f func(*bbolt.Tx) error) error {
	return db.plain(guarded(db.path, func() error { return db.bolt.Update(f) }))
}

func (db *DB) plain(err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	if d, ok := errors.AsType[damage](err); ok {
		return db.unusable(string(d))
	}
	_, file := errors.AsType[*fs.PathError](err)
	errno, system := errors.AsType[syscall.Errno](err)
	if file && (!system || errno == syscall.EFBIG || errno == syscall.EINVAL) {
		return db.unusable("a page leads outside the file")
	}
	return err
}

func (db *DB) unusable(why string) error { return &UnusableError{db.path, why} }

// damage is found where the path of the file is not known.
type damage string

func (d damage) Error() string { return string(d) }

// guarded runs f and turns what bolt does on a damaged file, panics and memory faults, into *UnusableError.
func guarded(path string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &UnusableError{path, fmt.Sprint("a page is damaged: ", p)}
		}
	}()
	return f()
}
