package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A foreign is a server that is not Redis.
type foreign struct {
	name string
	// find reports what is missing to run it.
	find func(root string) error
	// command is what runs it in dir, on a loopback port and, if it wants one, another.
	command func(ctx context.Context, root, dir string, port, other int) (*exec.Cmd, error)
	// ready reports whether it serves.
	ready func(ctx context.Context, addr string) error
}

// startWithin is how long a server may take to serve: a JVM or a database on a busy machine.
const startWithin = time.Minute

var etcdServer = &foreign{
	name: "etcd",
	find: func(root string) error {
		_, err := os.Stat(cached(root, "peers", "bin", "etcd"))
		return err
	},
	command: func(_ context.Context, root, dir string, port, other int) (*exec.Cmd, error) {
		client, peers := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", other)
		return exec.Command(cached(root, "peers", "bin", "etcd"),
			"--name", "bench", "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "bench="+peers), nil
	},
	ready: func(ctx context.Context, addr string) error {
		return says(ctx, addr, "GET /health HTTP/1.0\r\n\r\n", `"health":"true"`)
	},
}

var zookeeperServer = &foreign{
	name: "zookeeper",
	find: func(root string) error {
		if _, err := exec.LookPath("java"); err != nil {
			return err
		}
		_, err := zookeeperJars(root)
		return err
	},
	command: func(_ context.Context, root, dir string, port, _ int) (*exec.Cmd, error) {
		jars, err := zookeeperJars(root)
		if err != nil {
			return nil, err
		}
		conf := filepath.Join(dir, "zoo.cfg")
		text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n"+
			"maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n", filepath.Join(dir, "data"), port)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return exec.Command("java", "-Xmx512m", "-cp", jars, "org.apache.zookeeper.server.ZooKeeperServerMain", conf), nil
	},
	ready: func(ctx context.Context, addr string) error { return says(ctx, addr, "ruok", "imok") },
}

// zookeeperJars is the class path of Debian's package, unpacked, and of what the system has of its dependencies.
func zookeeperJars(root string) (string, error) {
	jars := cached(root, "peers", "zookeeper", "usr", "share", "java")
	if _, err := os.Stat(filepath.Join(jars, "zookeeper.jar")); err != nil {
		return "", err
	}
	return jars + "/*" + string(os.PathListSeparator) + "/usr/share/java/*", nil
}

var mariadbServer = &foreign{
	name: "mariadb",
	find: func(root string) error {
		_, err := os.Stat(mariadbBase(root) + "/sbin/mariadbd")
		return err
	},
	command: func(ctx context.Context, root, dir string, port, _ int) (*exec.Cmd, error) {
		base, data := mariadbBase(root), filepath.Join(dir, "data")
		libraries, err := filepath.Glob(base + "/lib/*-linux-gnu")
		if err != nil {
			return nil, err
		}
		environment := append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		common := []string{"--no-defaults", "--basedir=" + base, "--datadir=" + data}
		if os.Geteuid() == 0 {
			common = append(common, "--user=root") // it wants to be told; the machine's own server is another one
		}
		if err := bootstrapMariadb(ctx, base, data, environment, common); err != nil {
			return nil, err
		}
		args := append(common,
			"--port="+strconv.Itoa(port), "--bind-address=127.0.0.1",
			"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"), "--skip-name-resolve",
			"--max-connections=1000", "--init-file="+filepath.Join(dir, "init.sql"))
		// The harness connects over TCP from this machine; the server listens nowhere else and dies with the run.
		init := "CREATE DATABASE bench;\nCREATE USER bench@'127.0.0.1';\nGRANT ALL ON bench.* TO bench@'127.0.0.1';\n" +
			"CREATE TABLE bench.locks (name VARCHAR(190) PRIMARY KEY, owner VARCHAR(64) NOT NULL, ends DATETIME(3) NOT NULL);\n"
		if err := os.WriteFile(filepath.Join(dir, "init.sql"), []byte(init), 0o600); err != nil {
			return nil, err
		}
		cmd := exec.Command(base+"/sbin/mariadbd", args...)
		cmd.Env = environment
		return cmd, nil
	},
	// It sends its version to whoever connects, and listens after the init file was run.
	ready: func(ctx context.Context, addr string) error { return says(ctx, addr, "", "mysql_native_password") },
}

// bootstrapMariadb makes the server's own tables. The package's script for it wants a program of another package.
func bootstrapMariadb(ctx context.Context, base, data string, environment, args []string) error {
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	text := []byte("CREATE DATABASE mysql;\nUSE mysql;\n")
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		more, err := os.ReadFile(filepath.Join(base, "share", "mysql", name))
		if err != nil {
			return err
		}
		text = append(text, more...)
	}
	cmd := exec.CommandContext(ctx, base+"/sbin/mariadbd", append(args[:len(args):len(args)], "--bootstrap", "--silent-startup")...)
	cmd.Env, cmd.Stdin = environment, bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadbd --bootstrap: %w\n%s", err, out)
	}
	return nil
}

func mariadbBase(root string) string { return cached(root, "peers", "mariadb", "usr") }

// says connects, sends what is asked, and wants the answer to hold a text.
func says(ctx context.Context, addr, ask, want string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(ask)); err != nil {
		return err
	}
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if got = append(got, buf[:n]...); bytes.Contains(got, []byte(want)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it said %q: %w", got, err)
		}
	}
}

// A running is a foreign server under way.
type running struct {
	addr string
	cmd  *exec.Cmd
	dir  string
	out  *bytes.Buffer
	done chan struct{} // closed when it has ended
	uses int
}

// start starts the server in a folder of its own and returns once it serves.
func (f *foreign) start(ctx context.Context, root string) (*running, error) {
	dir, err := os.MkdirTemp("", "redlatch-bench-"+f.name+"-")
	if err != nil {
		return nil, err
	}
	r := &running{dir: dir, out: &bytes.Buffer{}, done: make(chan struct{})}
	ports, err := freePorts(2)
	if err == nil {
		r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		r.cmd, err = f.command(ctx, root, dir, ports[0], ports[1])
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	dieWithParent(r.cmd)
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(r.done) // stop waits for it
		_ = r.cmd.Wait()    // how it ended is told by whoever misses it
	}()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := f.ready(ctx, r.addr)
		if err == nil {
			return r, nil
		}
		select {
		case <-r.done:
			err = errors.New("it ended")
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			continue
		}
		stopped := r.stop()
		return nil, errors.Join(fmt.Errorf("%s does not serve: %w\n%s", f.name, err, r.out), stopped)
	}
}

// stop kills the server: its data is of no use to anybody.
func (r *running) stop() error {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
	return os.RemoveAll(r.dir)
}

// freePorts returns loopback ports that nobody listened on a moment ago.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// foreignPlace starts the contender's server, once for a run. Each measurement has a key of its own: nothing empties
// these servers in between.
func (b *bench) foreignPlace(ctx context.Context, e entry) (*place, error) {
	r := b.foreign[e.server]
	if r == nil {
		root, err := repository()
		if err != nil {
			return nil, err
		}
		if r, err = e.server.start(ctx, root); err != nil {
			return nil, err
		}
		if b.foreign == nil {
			b.foreign = map[*foreign]*running{}
		}
		b.foreign[e.server] = r
	}
	r.uses++
	return &place{
		addrs: []string{r.addr},
		key:   fmt.Sprintf("bench%d", r.uses),
		usage: func(context.Context) (usage, error) { return usage{cpu: cpuOf(r.cmd.Process.Pid)}, nil },
		close: func() {},
	}, nil
}

// cpuOf is the processor time of another process in seconds, 0 where the system does not tell it as Linux does.
func cpuOf(pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold anything; user and system time are the 12th and 13th field after it.
	_, after, _ := strings.Cut(string(data[bytes.LastIndexByte(data, ')'):]), " ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	var ticks float64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return ticks / 100
}
