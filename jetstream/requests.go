package jetstream

import (
	"context"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go/micro"
)

// Request answers one kind of request. A refusal has a status as in HTTP and words for a person; its body tells programs.
type Request func(ctx context.Context, body []byte) (answer []byte, status int, refusal string)

// maxRequests is how many requests of one kind are being answered at a time; more wait.
const maxRequests = 1000

// Answer serves requests as a NATS micro service until ctx is done, under the subjects "<subject>.<name>", on the servers of
// the log. Instances share the requests. Refusals are service errors, with the headers Nats-Service-Error-Code and
// Nats-Service-Error.
func (l *Log) Answer(ctx context.Context, subject, version string, requests map[string]Request) error {
	service, err := micro.AddService(l.nc, micro.Config{Name: "holdfast", Version: version,
		Description: "Requests of workers: docs/workers.md"})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer service.Stop() //nolint:errcheck // the connection ends it otherwise
	group := service.AddGroup(subject)
	for name, answer := range requests {
		slots := make(chan struct{}, maxRequests)
		err := group.AddEndpoint(name, micro.HandlerFunc(func(r micro.Request) {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				respond(ctx, r, answer)
			})
		}))
		if err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// respond answers one request. If that fails, whoever asked will ask again.
func respond(ctx context.Context, r micro.Request, answer Request) {
	body, status, refusal := answer(ctx, r.Data())
	if status != 0 {
		_ = r.Error(strconv.Itoa(status), refusal, body)
		return
	}
	_ = r.Respond(body)
}
