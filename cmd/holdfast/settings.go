package main

import (
	"errors"
	"fmt"
	"path/filepath"
)

// folder is where a service keeps everything; its methods name the parts.
type folder string

func (f folder) part(name string) string { return filepath.Join(string(f), name) }
func (f folder) logDir() string          { return f.part("log") }
func (f folder) blobs() string           { return f.part("blobs") }
func (f folder) state() string           { return f.part("state.db") }
func (f folder) anchor() string          { return f.part("head") }
func (f folder) node() string            { return f.part("node") }
func (f folder) tokens() string          { return f.part("tokens.json") }
func (f folder) adminToken() string      { return f.part("admin-token") }

// settings are the flags of a service.
type settings struct {
	Data            folder `default:"./holdfast-data" help:"Folder of log, payloads and state." placeholder:"DIR"`
	Listen          string `default:"127.0.0.1:8420" help:"Address of the HTTP API." placeholder:"ADDR"`
	Origin          string `default:"holdfast.local/dvir" help:"Name of a new log, for its genesis event." placeholder:"NAME"`
	Processors      string `help:"Processors beside the built-in one, and which letters go to them (YAML; docs/processors.md)." placeholder:"FILE" type:"path"`
	DvirConfig      string `help:"Roster and defect aliases of the built-in processor (JSON)." placeholder:"FILE" type:"path"`
	Workers         int    `default:"4" help:"Payloads processed at a time." placeholder:"N"`
	MaxPayload      int64  `default:"67108864" help:"Largest payload, in bytes." placeholder:"BYTES"`
	Retention       int    `default:"18" help:"Months that payloads are kept, 3 (49 CFR 396.11(a)(4)) to 120." placeholder:"MONTHS"`
	ExpiryWarning   int    `default:"90" help:"Warn, once a day, of open letters that lose their protection within so many days; 0 never does." placeholder:"DAYS"`
	NoImmutable     bool   `help:"Do not set the immutable flag on stored files, so that the folder can be removed."`
	NatsURL         string `help:"External NATS servers instead of the embedded one; user and password may be part of it." placeholder:"URL"`
	NatsCredentials string `help:"NATS credentials file for them." placeholder:"FILE" type:"path"`
	NatsSystemURL   string `help:"The same servers as a user of the system account, once, to see that they sync every write." placeholder:"URL"`

	NatsWork bool `help:"Answer workers on the external servers too, under holdfast.work.> (docs/workers.md)."`

	AcceptMissingPayloads bool `help:"Serve although the store lacks payloads of the log; those that wait become dead letters."`

	s3Flags
	LogLevel string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged." placeholder:"LEVEL"`
}

// Bounds of a retention in calendar months: 49 CFR 396.11(a)(4), and the cap of the payload store, since nobody can take
// back a date that is too far away.
const (
	minMonths = 3
	maxMonths = 120
)

// Validate refuses numbers that make no service.
func (s *settings) Validate() error {
	switch {
	case s.Workers < 1 || s.Workers > 1000:
		return errors.New("--workers: must be 1 to 1000")
	case s.MaxPayload < 1:
		return errors.New("--max-payload: must be at least 1")
	case s.Retention < minMonths || s.Retention > maxMonths:
		return fmt.Errorf("--retention: must be %d to %d months", minMonths, maxMonths)
	case s.ExpiryWarning < 0 || s.ExpiryWarning > maxDays:
		return fmt.Errorf("--expiry-warning: must be 0 to %d days", maxDays)
	}
	if s.NatsWork && s.NatsURL == "" {
		return errors.New("--nats-work: needs --nats-url, since nobody reaches the embedded server")
	}
	return s.s3Flags.validate()
}
