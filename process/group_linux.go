package process

import "syscall"

// ownGroup puts a program into a process group of its own, and has it die with the thread that starts it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
