package process

import (
	"context"
	"log/slog"
	"time"
)

// rest is what follows on a failure of the store: nothing is leased but one letter now and then, to see.
type rest struct {
	tries int       // since the failure, which counts as one; 0: the store works
	until time.Time // when the next letter may try
	told  bool      // that the store fails although it counts itself well
}

// resting tells whether nothing is to be handed out because of the store.
func (p *Pool) resting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cfg.Store.Healthy() != nil || time.Now().Before(p.rest.until)
}

// mayTry tells whether a letter may be leased. Whoever is told so while the store fails is the only one for a while,
// which is longer each time: the log must not grow with every attempt at a store that is away.
func (p *Pool) mayTry() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case p.cfg.Store.Healthy() != nil, now.Before(p.rest.until):
		return false
	case p.rest.tries > 0:
		p.rest.until = now.Add(min(storePause<<min(p.rest.tries, 10), maxAside))
		p.rest.tries++
	}
	return true
}

// storeFailed notes that the store failed a letter. If it fails again and counts itself well, nobody else tells.
func (p *Pool) storeFailed(ctx context.Context, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest.tries == 0 {
		p.rest = rest{tries: 1, until: time.Now().Add(storePause)}
	}
	if p.rest.tries > 1 && !p.rest.told && p.cfg.Store.Healthy() == nil {
		p.rest.told = true
		p.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "processing rests: the payload store answers and fails", slog.String("why", ofStore(err)))
	}
}

// storeWorked ends the rest.
func (p *Pool) storeWorked(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest.told {
		p.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "processing goes on")
	}
	p.rest = rest{}
}
