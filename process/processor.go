package process

import (
	"context"

	"github.com/holdfast-dvir/holdfast/deadletter"
)

// Processor turns a payload into an outcome. It is called from many goroutines at once.
type Processor interface {
	// Process runs the payload of job. The result is either a completion or a breakdown. An error is a fault
	// of ours, not of the payload: the letter goes back to the queue and the attempt does not count.
	Process(ctx context.Context, job deadletter.Job, payload []byte) (Result, error)
}

// Result is what a processor made of a payload: exactly one of the two.
type Result struct {
	Completion *deadletter.Completion
	Breakdown  *deadletter.Breakdown
}
