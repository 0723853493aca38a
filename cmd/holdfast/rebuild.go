package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-dvir/holdfast/jetstream"
	"github.com/holdfast-dvir/holdfast/projection"
)

type rebuildCmd struct {
	Data folder `default:"./holdfast-data" help:"Folder of the service." placeholder:"DIR"`
	outputFlag
}

// Run folds the state anew and puts it in place of the old.
func (c *rebuildCmd) Run(ctx context.Context) (err error) {
	log, err := jetstream.Open(ctx, jetstream.Config{Dir: c.Data.logDir(), ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	report, err := projection.Rebuild(ctx, log, c.Data.state())
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(struct {
			Events uint64 `json:"events"`
			Head   head   `json:"head"`
		}{report.Tip.Size, head(report.Tip.Head)})
	}
	fmt.Printf("%s rebuilt: %d events, head %s\n", filepath.Base(c.Data.state()), report.Tip.Size, report.Tip.Leaf)
	return nil
}
