package jetstream

import (
	"errors"
	"fmt"

	"github.com/holdfast-dvir/holdfast/chain"
)

var (
	// ErrLocked says that another process, or another Log of this one, has the folder open. The error is a *LockedError.
	ErrLocked = errors.New("the folder of the log is in use")
	// ErrMissing says that there is no log, and Config.ReadOnly forbids making one.
	ErrMissing = errors.New("there is no log here")
	// ErrUnsynced says that an external server acknowledges before it syncs, or does not let us see whether it does.
	ErrUnsynced = errors.New("the server is not known to sync every write")
	// ErrMessageLimit says that external servers take smaller messages than blocks of the log can be.
	ErrMessageLimit = errors.New("the messages that the servers take are too small")
	// ErrReadOnly answers Append on a Log opened with Config.ReadOnly. Nothing was sent.
	ErrReadOnly = errors.New("the log is open for reading only")
)

// LockedError is an ErrLocked with the folder and, when it is known, the process that holds it.
type LockedError struct {
	Dir string
	PID int // 0: unknown
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("the log folder %s is in use by %s: stop it first, or use another folder", e.Dir, holder)
}

// Is makes errors.Is(err, ErrLocked) hold.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// SettingError says that the stream is not set up as the log needs it. Setting is the name in the stream's JSON
// configuration; Have and Want are JSON, "unset" when absent.
type SettingError struct {
	Stream, Setting, Have, Want string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("stream %s: %s is %s and must be %s: find out who changed it and whether blocks were lost, then set it back",
		e.Stream, e.Setting, e.Have, e.Want)
}

// DamageError says that the stored log is not what was appended.
type DamageError struct {
	Stream   string
	Position chain.Position // the first position concerned; 0: the stream as a whole
	What     string
}

// Is makes damage a chain.ErrDamaged to readers that do not know this log.
func (e *DamageError) Is(target error) bool { return target == chain.ErrDamaged }

func (e *DamageError) Error() string {
	where := "stream " + e.Stream
	if e.Position != 0 {
		where = fmt.Sprintf("%s, position %d", where, e.Position)
	}
	return where + ": " + e.What + ": keep the files and restore the log from a copy"
}
