package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// What remains of a contender's locks when something fails. A row with systems shows it beside their speed.
const (
	promiseNone     = "nothing"
	promiseRedis    = "memory of one Redis; lease"
	promiseOurs     = "memory of one Redis; lease, loss is told; on request fencing, replica acks"
	promiseRedisson = "memory of one Redis; lease"
	promiseEtcd     = "Raft log on disk, consensus (1 member here: nobody to ask); lease, revisions fence"
	promiseZoo      = "ZAB log on disk, consensus (1 member here: nobody to ask); session"
	promiseGetLock  = "memory of one server; ends with the connection"
	promiseUnique   = "row on one server's disk; stays until somebody deletes it"
)

// jvmWarmUp is how long a process of Redisson runs before it counts: by then what matters is compiled.
const jvmWarmUp = 6 * time.Second

// systems are what people compare a lock on Redis with, besides other libraries for Go: run with -peers all, each on
// its own server with one member, in the state that its package or project gives it.
var systems = []entry{
	{
		name:    "redisson",
		what:    "Redisson's RLock (Java), a warm JVM in each process",
		role:    system,
		promise: promiseRedisson,
		program: redissonProgram,
		warmUp:  jvmWarmUp,
	},
	{
		name:    "redisson-fair",
		what:    "Redisson's fair lock (Java), a warm JVM in each process",
		role:    system,
		promise: promiseRedisson,
		program: redissonProgram,
		warmUp:  jvmWarmUp,
	},
	{
		name:    "etcd",
		what:    "concurrency.Mutex of go.etcd.io/etcd/client/v3; a session for each goroutine",
		role:    system,
		promise: promiseEtcd,
		program: systemsProgram,
		server:  etcdServer,
	},
	{
		name:    "zookeeper",
		what:    "Lock of github.com/go-zookeeper/zk",
		role:    system,
		promise: promiseZoo,
		program: systemsProgram,
		server:  zookeeperServer,
	},
	{
		name:    "mariadb-getlock",
		what:    "GET_LOCK and RELEASE_LOCK of MariaDB; a connection for each goroutine",
		role:    system,
		promise: promiseGetLock,
		program: systemsProgram,
		server:  mariadbServer,
	},
	{
		name:    "mariadb-unique",
		what:    "INSERT and DELETE of a unique key in MariaDB (InnoDB), retry every 10 ms",
		role:    system,
		promise: promiseUnique,
		program: systemsProgram,
		server:  mariadbServer,
	},
}

// The programs of the systems; their paths are filled in when they are asked for.
var (
	redissonProgram = &program{}
	systemsProgram  = &program{}
)

// cached is a path below the folder that scripts/ensure-peers.sh fills.
func cached(root string, parts ...string) string {
	return filepath.Join(append([]string{root, ".cache"}, parts...)...)
}

// findSystems builds and finds what the systems need, and says loudly what is missing.
func findSystems(ctx context.Context, loud io.Writer) (map[string]bool, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	var broken error
	if systemsProgram.path == nil {
		to := cached(root, "peers", "bin", "systems")
		if broken = goTool(ctx, filepath.Join(root, "bench", "systems"), "build", "-o", to, "."); broken == nil {
			systemsProgram.path = []string{to}
		}
	}
	found := map[string]bool{}
	for _, e := range systems {
		err := redissonReady(root)
		if e.server != nil {
			if err = broken; err == nil {
				err = e.server.find(root)
			}
		}
		if err != nil {
			fmt.Fprintf(loud, "\n!!!! NOT MEASURED: %s: %v\n!!!! scripts/ensure-peers.sh installs what is missing.\n\n", e.name, err)
			continue
		}
		found[e.name] = true
	}
	return found, nil
}

// redissonReady finds the classes of Redisson and of the program that runs it.
func redissonReady(root string) error {
	java, err := exec.LookPath("java")
	if err != nil {
		return err
	}
	target := filepath.Join(root, "bench", "redisson", "target")
	jars, err := os.ReadFile(filepath.Join(target, "classpath.txt"))
	if err != nil {
		return fmt.Errorf("the program that runs Redisson is not built: %w", err)
	}
	path := filepath.Join(target, "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(jars))
	redissonProgram.path = []string{
		java, "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, "redlatch.bench.Worker",
	}
	return nil
}

// notAsked says what a run without the systems leaves out.
func notAsked(out io.Writer) {
	var names []string
	for _, e := range systems {
		names = append(names, e.name)
	}
	fmt.Fprintf(out, "!!!! NOT MEASURED: %s (-peers all measures them, scripts/ensure-peers.sh installs them)\n", strings.Join(names, ", "))
}
