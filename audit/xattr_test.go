package audit_test

import "golang.org/x/sys/unix"

func setRetention(path string, text []byte) error {
	return unix.Setxattr(path, "user.holdfast.retention", text, 0)
}
