package jetstream

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-dvir/holdfast/chain"
)

// startCluster runs three servers; sync says how each of them does it.
func startCluster(t testing.TB, sync ...string) []*server.Server {
	t.Helper()
	ports := freePorts(t, len(sync))
	var routes []string
	for _, port := range ports {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	var nodes []*server.Server
	for i, interval := range sync {
		dir := t.TempDir()
		conf := filepath.Join(dir, "server.conf")
		require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
			listen: "127.0.0.1:-1"
			server_name: node%d
			jetstream { store_dir: %q, sync_interval: %s }
			cluster { name: test, no_advertise: true, routes: [%s], listen: "127.0.0.1:%d" }
			accounts {
				APP { jetstream: enabled, users: [{user: app, password: app}] }
				SYS { users: [{user: sys, password: sys}] }
			}
			system_account: SYS`, i, dir, interval, strings.Join(routes, ","), ports[i]), 0o600))
		options, err := server.ProcessConfigFile(conf)
		require.NoError(t, err)
		options.NoSigs, options.NoLog = true, true
		node, err := server.NewServer(options)
		require.NoError(t, err)
		nodes = append(nodes, node)
	}
	for _, node := range nodes {
		node.Start()
		t.Cleanup(func() { stop(node) })
	}
	require.Eventually(t, func() bool { // or a stream finds no peers to be placed on
		return slices.ContainsFunc(nodes, func(n *server.Server) bool {
			return n.JetStreamIsLeader() && len(n.JetStreamClusterPeers()) == len(nodes)
		})
	}, 30*time.Second, 10*time.Millisecond)
	return nodes
}

func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		held, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer held.Close() // all are held until all are known, or one would come twice
		ports = append(ports, held.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func clusterConfig(nodes []*server.Server) Config {
	var app, system []string
	for _, node := range nodes {
		app = append(app, "nats://app:app@"+node.Addr().String())
		system = append(system, "nats://sys:sys@"+node.Addr().String())
	}
	return Config{URL: strings.Join(app, ","), SystemURL: strings.Join(system, ","), Replicas: 3}
}

// TestCluster: conflicts are told by replicas too, and an append outlives the leader of the stream.
func TestCluster(t *testing.T) {
	nodes := startCluster(t, "always", "always", "always")
	cfg := clusterConfig(nodes)
	l := open(t, cfg)
	fill(t, l, 3)
	_, err := l.Append(t.Context(), 1, lines("late"))
	require.ErrorIs(t, err, chain.ErrConflict)

	follow, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := make(chan string, 100)
	go func() {
		defer close(seen)
		for b, err := range l.Follow(follow, 3) {
			if err == nil {
				seen <- string(b.Lines[0])
			}
		}
	}()
	info, err := l.info(t.Context())
	require.NoError(t, err)
	for _, node := range nodes {
		if node.Name() == info.Cluster.Leader {
			stop(node)
		}
	}
	at, err := l.Append(follow, 3, lines("without the old leader"))
	require.NoError(t, err)
	require.EqualValues(t, 4, at)
	require.Equal(t, "without the old leader", <-seen)
	require.Equal(t, []string{"block 1", "block 2", "block 3", "without the old leader"}, content(t, l))
	require.NoError(t, l.Healthy(t.Context()))
}

func TestClusterWithOneLazyServer(t *testing.T) {
	require.ErrorIs(t, refused(t, clusterConfig(startCluster(t, "always", "2m", "always"))), ErrUnsynced)
}
