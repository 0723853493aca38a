package process

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitMemory bounds the data of this process. Address space that is only reserved does not count, of which Go takes
// much.
func limitMemory(bytes int64) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	n := uint64(bytes)
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: n, Max: n})
}

// limitCPU gives this process so much processor time from now on, in whole seconds; then comes SIGXCPU. The hard limit
// stays, so that the next payload can have its own.
func limitCPU(more time.Duration) error {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return err
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CPU, &now); err != nil {
		return err
	}
	spent := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	now.Cur = min(uint64((spent+more+time.Second-1)/time.Second), now.Max)
	return unix.Setrlimit(unix.RLIMIT_CPU, &now)
}

// signalName is the name of a signal, such as SIGKILL.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "unknown"
}
