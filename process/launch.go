package process

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// launchedAt is the descriptor on which a launcher tells that the program does not run; it closes when it does.
const launchedAt = 3

// Launch makes this process a program within limits: args are bytes of memory, seconds of processor time, the program's
// path and its arguments. It returns only if that fails.
func Launch(args []string) error {
	unix.CloseOnExec(launchedAt)
	err := launch(args)
	if _, told := os.NewFile(launchedAt, "launched").WriteString("no"); told != nil {
		return errors.Join(errLaunch, told)
	}
	return err
}

func launch(args []string) error {
	if len(args) < 3 {
		return errLaunch
	}
	memory, bad := strconv.ParseInt(args[0], 10, 64)
	seconds, worse := strconv.ParseInt(args[1], 10, 64)
	if bad != nil || worse != nil {
		return errLaunch
	}
	if err := limitCPU(time.Duration(seconds) * time.Second); err != nil {
		return err
	}
	if err := limitMemory(memory); err != nil { // last: Go takes no more from here on
		return err
	}
	return syscall.Exec(args[2], args[2:], os.Environ())
}
