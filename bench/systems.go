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

// jvmWarmUp is how long a process of Redisson runs before it counts: by then what matters is compiled.
const jvmWarmUp = 6 * time.Second

// systems are what people compare a lock on Redis with, besides other libraries for Go: run with -peers all, each on
// its own server with one member, in the state that its package or project gives it. Their speed is to be seen with
// what remains of their locks when something fails.
var systems = []entry{
	{name: "redisson", role: system, warmUp: jvmWarmUp, what: "Redisson's RLock (Java), a warm JVM in each process"},
	{name: "redisson-fair", role: system, warmUp: jvmWarmUp, what: "Redisson's fair lock, the same"},
	{
		name: "etcd", role: system, server: etcdServer,
		what: "concurrency.Mutex of go.etcd.io/etcd/client/v3, a session for each goroutine; Raft log on disk, revisions fence",
	},
	{
		name: "zookeeper", role: system, server: zookeeperServer,
		what: "Lock of github.com/go-zookeeper/zk; ZAB log on disk, ends with the session",
	},
	{
		name: "mariadb", role: system, server: mariadbServer,
		what: "GET_LOCK of MariaDB, a connection for each goroutine; memory of one server, ends with the connection",
	},
}

var etcdServer = &foreign{
	name: "etcd", file: "bin/etcd", hello: "GET /health HTTP/1.0\r\n\r\n", answer: `"health":"true"`,
	command: func(_ context.Context, file, dir string, port, other int) (*exec.Cmd, error) {
		client, peers := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", other)
		return exec.Command(file, "--name", "bench", "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "bench="+peers), nil
	},
}

var zookeeperServer = &foreign{
	name: "zookeeper", file: "zookeeper/usr/share/java/zookeeper.jar", hello: "ruok", answer: "imok",
	command: func(_ context.Context, file, dir string, port, _ int) (*exec.Cmd, error) {
		conf := filepath.Join(dir, "zoo.cfg")
		text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
			"maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n", filepath.Join(dir, "data"), port)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, err
		}
		// Debian's package, unpacked, and what the system has of its dependencies.
		jars := filepath.Dir(file) + "/*" + string(os.PathListSeparator) + "/usr/share/java/*"
		return exec.Command("java", "-Xmx512m", "-cp", jars, "org.apache.zookeeper.server.ZooKeeperServerMain", conf), nil
	},
}

var mariadbServer = &foreign{
	name: "mariadb", file: "mariadb/usr/sbin/mariadbd", answer: "mysql_native_password",
	command: func(_ context.Context, file, dir string, port, _ int) (*exec.Cmd, error) {
		base, data := filepath.Dir(filepath.Dir(file)), filepath.Join(dir, "data")
		libraries, err := filepath.Glob(base + "/lib/*-linux-gnu")
		if err == nil {
			err = os.Mkdir(data, 0o700)
		}
		if err != nil {
			return nil, err
		}
		// Without grant tables nobody has to make any. It listens on loopback only and ends with the run.
		cmd := exec.Command(file, "--no-defaults", "--skip-grant-tables", "--basedir="+base, "--datadir="+data,
			fmt.Sprintf("--port=%d", port), "--bind-address=127.0.0.1", "--skip-networking=0", "--skip-name-resolve",
			"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"), "--max-connections=1000")
		if os.Geteuid() == 0 {
			cmd.Args = append(cmd.Args, "--user=root") // it wants to be told; the machine's own server is another one
		}
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		return cmd, nil
	},
}

// findSystems builds and finds what the systems need, and says loudly what is missing. It returns what runs the
// processes of each that is there.
func findSystems(ctx context.Context, loud io.Writer) (map[string][]string, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	broken := goTool(ctx, filepath.Join(root, "bench", "systems"), "build", "-o", cached(root, "bin/systems"), ".")
	found := map[string][]string{}
	for _, e := range systems {
		program, err := e.runsBy(root)
		if err == nil && e.server != nil {
			err = broken
		}
		if err != nil {
			fmt.Fprintf(loud, "\n!!!! NOT MEASURED: %s: %v\n!!!! scripts/ensure-peers.sh installs what is missing.\n\n", e.name, err)
			continue
		}
		found[e.name] = program
	}
	return found, nil
}

// runsBy is what runs the processes of a system, or an error if it, or its server, is not there.
func (e entry) runsBy(root string) ([]string, error) {
	if e.server == nil {
		return redisson(root)
	}
	_, err := os.Stat(cached(root, e.server.file))
	return []string{cached(root, "bin/systems")}, err
}

// cached is a file below the folder that scripts/ensure-peers.sh fills.
func cached(root, file string) string { return filepath.Join(root, ".cache", "peers", file) }

// redisson is the program that runs Redisson, with the classes that it needs.
func redisson(root string) ([]string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, err
	}
	target := filepath.Join(root, "bench", "redisson", "target")
	jars, err := os.ReadFile(filepath.Join(target, "classpath.txt"))
	if err != nil {
		return nil, fmt.Errorf("the program that runs Redisson is not built: %w", err)
	}
	path := filepath.Join(target, "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(jars))
	return []string{
		java, "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", path, "redlatch.bench.Worker",
	}, nil
}
