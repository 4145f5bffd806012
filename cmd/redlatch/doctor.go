package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// level is how much a finding matters.
type level string

const (
	fine    level = "ok"
	note    level = "note"    // to know
	warning level = "warning" // locks work, but not in every case
	problem level = "problem" // locks don't work, or can't be relied on
)

// finding is one thing that the doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Node   string `json:"node,omitempty"`
	Level  level  `json:"level"`
	Text   string `json:"text"`
	Change string `json:"change,omitempty"` // what to do about it
}

// examination collects the findings about one deployment.
type examination struct {
	client   rueidis.Client
	clean    func(string) string // of what servers say
	prefix   string
	needs    []string
	script   string   // how scripts begin that try rights
	fit      []string // the needs of which no right is missing
	findings []finding
}

func (e *examination) add(check, node string, l level, text, change string) {
	e.findings = append(e.findings, finding{check, quote.Text(node), l, quote.Line(e.clean(text)), quote.Line(change)})
}

func (a *app) doctorCommand() *cobra.Command {
	var form string
	var strict bool
	var wants []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the server is fit for locks",
		Long: `doctor connects to the server as configured and checks what locks depend on: round trip, version, topology,
permissions (it names each missing one), memory limits, persistence and replicas, the servers' clocks.
It says what to change, and which settings of INFO and CONFIG the user may not read. It tests permissions by running
commands on a key of its own in scripts that may not write; before Redis 7.0 it takes away what they wrote.
Permissions for other features than those of --need are only noted.`,
		Example: `  redlatch doctor --need reentrant,fair --strict -o json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if i := slices.IndexFunc(wants, func(n string) bool { return !slices.Contains(needs(), n) }); i >= 0 {
				return usageError("need: %q is not one of %s", wants[i], strings.Join(needs(), ", "))
			}
			findings, err := a.examine(cmd.Context(), wants)
			if err != nil {
				return err
			}
			counts := map[level]int{}
			for _, f := range findings {
				counts[f.Level]++
			}
			if form == "json" {
				err = writeJSON(a.std.out, findings)
			} else {
				screenOf(a.std.out).findings(a.std.out, findings, counts)
			}
			if err == nil && (counts[problem] > 0 || strict && counts[warning] > 0) {
				err = errSaid
			}
			return err
		},
	}
	output(c, &form)
	c.Flags().BoolVar(&strict, "strict", false, "fail for warnings, too")
	c.Flags().StringSliceVar(&wants, "need", []string{"reentrant"}, "what the application uses: "+strings.Join(needs(), ", "))
	_ = c.RegisterFlagCompletionFunc("need", cobra.FixedCompletions(needs(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// findings writes them for people.
func (s screen) findings(out io.Writer, findings []finding, counts map[level]int) {
	signs := map[level]cell{fine: {"ok  ", green}, note: {"note", dim}, warning: {"WARN", yellow}, problem: {"BAD ", red}}
	for _, f := range findings {
		sign, check := signs[f.Level], strings.TrimSpace(f.Check+" "+f.Node)
		fmt.Fprintf(out, "%s  %s: %s\n", s.paint(sign.style, sign.text), s.paint(bold, check), f.Text)
		if f.Change != "" {
			fmt.Fprintf(out, "      -> %s\n", f.Change)
		}
	}
	fmt.Fprintf(out, "\n%d problem(s), %d warning(s)\n", counts[problem], counts[warning])
}

// examine makes all checks. Its error is a server that can't be reached.
func (a *app) examine(ctx context.Context, wants []string) ([]finding, error) {
	cn, err := a.connect("doctor")
	if err != nil {
		return nil, err
	}
	defer cn.Close()
	client := cn.Client()
	e := &examination{client: client, clean: a.flags.clean, prefix: a.flags.get("prefix"), needs: wants}
	nodes := client.Nodes()
	if err := e.reach(ctx, nodes, a.flags.timeout); err != nil {
		return nil, err
	}
	modes := map[rueidis.ClientMode]string{rueidis.ClientModeCluster: "cluster", rueidis.ClientModeSentinel: "sentinel"}
	e.needs = append(e.needs, modes[client.Mode()]) // "" is no need
	e.servers(ctx, nodes, client.Mode())
	e.permissions(ctx)
	e.probe(ctx, a)
	return e.findings, nil
}

// probe takes and frees a lock of each kind that is needed, as an application does. Where a right is missing it leaves
// that: what it begins could perhaps not be undone.
func (e *examination) probe(ctx context.Context, a *app) {
	client, err := a.open("doctor", func(c *redlatch.Config) { c.FenceTTL = time.Minute })
	if err != nil {
		e.add("sdk", "", problem, message(err), "")
		return
	}
	defer client.Close()
	name := "redlatch-doctor:" + uuid.NewString()
	for _, try := range []struct {
		need string
		lock redlatch.Locker
	}{
		{"reentrant", client.RLock(name + ":r")},
		{"fair", client.FairLock(name + ":f")},
		{"read-write", client.ReadWriteLock(name + ":rw").WriteLock()},
		{"fenced", client.RLock(name+":t", redlatch.Fenced())},
	} {
		if !slices.Contains(e.fit, try.need) {
			continue
		}
		h, err := try.lock.TryLock(ctx, 0, 0)
		if err == nil {
			err = h.Unlock(ctx)
		}
		e.worked("lock "+try.need, try.need, "taken and freed", err)
		if try.need == "fenced" { // who may not delete its counter may let it end
			counter := "redisson_lock_token:{" + e.prefix + name + ":t}"
			if e.client.Do(ctx, e.client.B().Del().Key(counter).Build()).Error() != nil {
				_ = e.client.Do(ctx, e.client.B().Set().Key(counter).Value("1").PxMilliseconds(1).Build()).Error() // at worst it ends by itself
			}
		}
	}
	if slices.Contains(e.fit, "operators") {
		_, err = client.Inspect(ctx, name)
		e.worked("inspect", "operators", "works", err)
	}
}

// worked adds what came of a try of what is needed, or is not.
func (e *examination) worked(check, need, text string, err error) {
	level := fine
	if err != nil {
		level, text = e.ifNeeded(need), message(err)
	}
	e.add(check, "", level, text, "")
}

// ifNeeded is the level of what does not work and some need.
func (e *examination) ifNeeded(need string) level {
	if slices.Contains(e.needs, need) {
		return problem
	}
	return note
}

const pings = 20

// reach measures the round trip to each node; a server that does not answer is the end.
func (e *examination) reach(ctx context.Context, nodes map[string]rueidis.Client, timeout time.Duration) error {
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[addr]
		var trips []time.Duration
		for range pings {
			began := time.Now()
			pctx, cancel := context.WithTimeout(ctx, timeout)
			err := node.Do(pctx, node.B().Ping().Build()).Error()
			cancel()
			if err != nil && !denied(err) {
				return &statusError{fmt.Errorf("%s does not answer: %w", addr, err), exitUnavailable}
			}
			trips = append(trips, time.Since(began))
		}
		slices.Sort(trips)
		text := fmt.Sprintf("median %s, longest of %d %s", precise(trips[pings/2]), pings, precise(trips[pings-1]))
		level, change := fine, ""
		switch median := trips[pings/2]; {
		case median > 500*time.Millisecond:
			level, change = problem, "locks with leases of a few seconds can't be renewed in time: is it the network (short on the server's machine), or the server (SLOWLOG)?"
		case median > 50*time.Millisecond:
			level, change = warning, "each acquisition and each hand-over takes that long: use a nearer server; if it is near, is it short on its own machine?"
		}
		e.add("round trip", addr, level, text, change)
	}
	return nil
}

func precise(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// pairs reads lines such as key:value.
func pairs(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out
}

// setting reads one setting; "" = not permitted.
func setting(ctx context.Context, node rueidis.Client, name string) string {
	m, _ := node.Do(ctx, node.B().ConfigGet().Parameter(name).Build()).AsStrMap()
	return m[name]
}

// servers looks at each node by itself.
func (e *examination) servers(ctx context.Context, nodes map[string]rueidis.Client, mode rueidis.ClientMode) {
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		text, err := nodes[addr].Do(ctx, nodes[addr].B().Info().Build()).ToString()
		in := pairs(text)
		if err != nil {
			e.add("server", addr, note, "no permission for INFO: version, memory, persistence and replicas are unknown", "ACL SETUSER … +info")
			e.clock(ctx, addr, nodes[addr])
			continue
		}
		name := "Redis " + in["redis_version"]
		if v := in["valkey_version"]; v != "" {
			name = "Valkey " + v
		}
		e.add("version", addr, fine, name, "") // the SDK says whether it is too old
		if in["role"] != "master" {
			if mode != rueidis.ClientModeCluster {
				e.add("topology", addr, problem, "it is a replica: it can't take locks", "use the master's address, or Sentinel (master_set in the URL)")
			}
			continue // its master's settings count
		}
		e.memory(addr, in)
		e.persistence(ctx, addr, nodes[addr], in)
		e.replicas(ctx, addr, nodes[addr], in)
		e.clock(ctx, addr, nodes[addr])
	}
	switch mode {
	case rueidis.ClientModeCluster:
		e.cluster(ctx)
	case rueidis.ClientModeSentinel:
		e.add("topology", "", fine, "Sentinel", "")
	default:
		e.add("topology", "", fine, "one server; when it is gone nobody can take a lock", "")
	}
}

// memory tells whether a lock can be dropped while it is held, and whether one can be taken.
func (e *examination) memory(addr string, in map[string]string) {
	limit, _ := strconv.ParseInt(in["maxmemory"], 10, 64)
	used, _ := strconv.ParseInt(in["used_memory"], 10, 64)
	policy := in["maxmemory_policy"]
	switch {
	case limit > 0 && policy != "noeviction":
		e.add("eviction", addr, problem, fmt.Sprintf("maxmemory-policy %s can drop a lock while it is held (%s keys dropped so far)", policy, in["evicted_keys"]),
			"CONFIG SET maxmemory-policy noeviction, or a server of its own for locks")
	case policy != "noeviction":
		e.add("eviction", addr, warning, "maxmemory-policy "+policy+", without effect as long as maxmemory is 0", "CONFIG SET maxmemory-policy noeviction")
	default:
		e.add("eviction", addr, fine, "noeviction", "")
	}
	level, text, change := fine, "no maxmemory: "+in["used_memory_human"]+" in use", ""
	if limit > 0 {
		text = fmt.Sprintf("%d %% of maxmemory in use", used*100/limit)
	}
	if limit > 0 && used*10 >= limit*9 {
		level, change = warning, "at 100 % no lock can be taken (unlock and renewal still work): raise maxmemory"
	}
	e.add("memory", addr, level, text, change)
}

func (e *examination) persistence(ctx context.Context, addr string, node rueidis.Client, in map[string]string) {
	level, text, change := fine, "append-only file; appendfsync is unknown", ""
	switch sync := setting(ctx, node, "appendfsync"); {
	case in["aof_enabled"] != "1":
		level, text = note, "no append-only file: a restart forgets the locks that are held; two holders are possible for up to a lease"
		change = "where that matters: appendonly yes, start a crashed server later than the longest lease, or fence"
	case sync == "always":
		text = "append-only file, every write is synced: locks survive a restart"
	case sync != "":
		level, text = note, "append-only file, appendfsync "+sync+": a crash forgets up to a second of locks"
		change = "where that matters: fence, appendfsync always, or QuorumLock"
	}
	e.add("persistence", addr, level, text, change)
	if in["rdb_last_bgsave_status"] == "err" && setting(ctx, node, "stop-writes-on-bgsave-error") != "no" {
		e.add("persistence", addr, problem, "the last BGSAVE failed: writes are refused (MISCONF)", "look at the server's log and disk")
	}
}

func (e *examination) replicas(ctx context.Context, addr string, node rueidis.Client, in map[string]string) {
	n, _ := strconv.Atoi(in["connected_slaves"])
	least, _ := strconv.Atoi(setting(ctx, node, "min-replicas-to-write"))
	switch {
	case least > n:
		e.add("replicas", addr, problem, fmt.Sprintf("%d connected, min-replicas-to-write is %d: writes are refused", n, least), "bring replicas back")
	case n == 0:
		e.add("replicas", addr, note, "none: nothing takes over when the server is gone", "")
	default:
		e.add("replicas", addr, note, fmt.Sprintf("%d connected; a failover can forget the latest acquisitions", n),
			"where that matters: Config.ReplicaAcks, fencing, or QuorumLock")
	}
}

// clock compares a server's clock with ours.
func (e *examination) clock(ctx context.Context, addr string, node rueidis.Client) {
	began := time.Now()
	parts, err := node.Do(ctx, node.B().Time().Build()).AsIntSlice()
	took := time.Since(began)
	if err != nil || len(parts) != 2 {
		e.add("clock", addr, note, "no permission for TIME", "ACL SETUSER … +time")
		return
	}
	off, level, change := time.Unix(parts[0], parts[1]*1000).Sub(began.Add(took/2)), fine, ""
	if off.Abs() > time.Second+took {
		level, change = warning, "locks don't depend on it, but the times shown do, and fencing after a failover needs the servers' clocks: use NTP"
	}
	e.add("clock", addr, level, fmt.Sprintf("%+d ms to this machine (± %s)", off.Round(time.Millisecond).Milliseconds(), precise(took/2)), change)
}

func (e *examination) cluster(ctx context.Context) {
	text, err := e.client.Do(ctx, e.client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		e.add("topology", "", note, "Cluster; no permission for CLUSTER INFO", "ACL SETUSER … +cluster|info")
		return
	}
	in := pairs(strings.TrimPrefix(text, "txt:")) // RESP3 says that it is a text
	words := fmt.Sprintf("Cluster of %s masters, %s of 16384 slots", in["cluster_size"], in["cluster_slots_ok"])
	if in["cluster_state"] != "ok" || in["cluster_slots_ok"] != "16384" {
		e.add("topology", "", problem, words+", state "+in["cluster_state"], "locks of the slots that are not covered can't be taken")
		return
	}
	e.add("topology", "", fine, words, "")
}
