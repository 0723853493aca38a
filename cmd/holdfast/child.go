package main

import (
	"fmt"
	"os"

	"github.com/holdfast-dvir/holdfast/process"
)

// asChild is how this program starts itself to work on payloads, apart from the verbs: nobody else does.
const asChild = "child"

// runChild is this program as a child of the service.
func runChild(args []string) int {
	var err error
	if len(args) == 0 {
		err = process.ServeChild(os.Stdin, os.Stdout, nil)
	} else {
		err = process.Launch(args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return exitFailed
	}
	return exitOK
}

// childCommand starts this program as a child.
func childCommand() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, asChild}, nil
}
