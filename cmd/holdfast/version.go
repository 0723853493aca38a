package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the module version or the commit this binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel"
}

type versionCmd struct {
	outputFlag
}

func (c *versionCmd) Run() error {
	if c.json() {
		return printJSON(map[string]string{"version": version(), "go": runtime.Version(), "format": "1"})
	}
	fmt.Println("holdfast", version(), runtime.Version())
	return nil
}
