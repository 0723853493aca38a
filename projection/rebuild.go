package projection

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/holdfast-dvir/holdfast/chain"
)

// Report says what Rebuild made.
type Report struct {
	Tip  chain.Tip
	Size int64 // of the file, in bytes
}

// Rebuild folds the log from zero into a new file beside path, makes it durable and puts it in the place of the
// old one, which may be missing or damaged but not open: ErrLocked. On any error, a broken event among them, the old
// file stays as it is.
func Rebuild(ctx context.Context, r chain.Reader, path string) (report Report, err error) {
	old, err := openBolt(path, false) // held, so that nobody opens it meanwhile
	if _, unusable := errors.AsType[*UnusableError](err); err != nil && !unusable {
		return Report{}, err
	}
	if old != nil {
		defer func() { err = errors.Join(err, old.Close()) }()
	}
	fresh := path + ".rebuild"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Report{}, err
	}
	if report.Tip, err = build(ctx, r, fresh); err != nil {
		return Report{}, errors.Join(err, os.Remove(fresh))
	}
	info, err := os.Stat(fresh)
	if err != nil {
		return Report{}, err
	}
	report.Size = info.Size()
	if err := os.Rename(fresh, path); err != nil {
		return Report{}, err
	}
	return report, syncDir(filepath.Dir(path))
}

// build folds without fsync, since nothing of it counts before the end.
func build(ctx context.Context, r chain.Reader, path string) (tip chain.Tip, err error) {
	db, err := Open(path)
	if err != nil {
		return chain.Tip{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.bolt.NoSync, db.bolt.NoGrowSync, db.bolt.AllocSize = true, true, 256<<20
	db.far = newScattered(64)
	if err := db.CatchUp(ctx, r); err != nil {
		return chain.Tip{}, err
	}
	for range db.far.shelves {
		if err := db.update(db.far.write); err != nil {
			return chain.Tip{}, err
		}
	}
	return db.Tip(), db.bolt.Sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
