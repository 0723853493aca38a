// Package natstest runs a NATS server for tests that need one outside of the program under test.
package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"
)

// Start runs a server that syncs every write until the test ends. url reaches it as an application, system as a user of the
// system account.
func Start(t testing.TB) (url, system string) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "server.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
		listen: "127.0.0.1:-1"
		jetstream { store_dir: %q, sync_interval: always }
		accounts {
			APP { jetstream: enabled, users: [{user: app, password: app}] }
			SYS { users: [{user: sys, password: sys}] }
		}
		system_account: SYS`, dir), 0o600))
	options, err := server.ProcessConfigFile(conf)
	require.NoError(t, err)
	options.NoSigs, options.NoLog = true, true
	s, err := server.NewServer(options)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(10*time.Second))
	return "nats://app:app@" + s.Addr().String(), "nats://sys:sys@" + s.Addr().String()
}

// Asker sends requests to services.
type Asker struct {
	t  testing.TB
	nc *nats.Conn
}

// NewAsker connects to url until the test ends.
func NewAsker(t testing.TB, url string) *Asker {
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &Asker{t, nc}
}

// Ask sends one request. status is that of a service error, "" for none.
func (a *Asker) Ask(subject string, body []byte) (answer []byte, status string) {
	a.t.Helper()
	m, err := a.nc.Request(subject, body, 20*time.Second)
	require.NoError(a.t, err)
	return m.Data, m.Header.Get(micro.ErrorCodeHeader)
}

// Serves tells whether anybody answers on subject.
func (a *Asker) Serves(subject string) func() bool {
	return func() bool {
		_, err := a.nc.Request(subject, []byte("?"), time.Second)
		return err == nil
	}
}
