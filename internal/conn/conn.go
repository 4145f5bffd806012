// Package conn is the seam to the Redis client library: it checks and completes
// the connection options, runs scripts, and says what an error means.
package conn

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
)

// Command is one run of a script.
type Command struct {
	Script *luascript.Script
	Keys   []string
	Args   []string

	// Acks asks for WAIT on the same connection, behind the script.
	Acks       int
	AckTimeout time.Duration

	// Tell asks who the server is, on the same connection, behind the script:
	// the answer is never older than the script's.
	Tell bool
}

// Server tells one run of a server from the next. What a server says of its age is not asked for: its
// clock may have been set.
type Server struct{ RunID string }

// Value is one element of a reply: a string or an integer.
type Value struct {
	Int int64
	Str string
}

// Reply is what a script returned: a bare integer, or an array that begins with
// one.
type Reply struct {
	Code  int64
	Vals  []Value // the whole array; nil for a bare integer
	Acked int     // replicas that acknowledged, when Command.Acks asked
	Waits error   // why WAIT failed, if it did

	Server    Server // when Command.Tell asked
	ServerErr error  // why that is not known
}

// Int is the integer at position i of an array reply, 0 when there is none.
func (r Reply) Int(i int) int64 {
	if i < len(r.Vals) {
		return r.Vals[i].Int
	}
	return 0
}

// Str is the string at position i of an array reply, "" when there is none.
func (r Reply) Str(i int) string {
	if i < len(r.Vals) {
		return r.Vals[i].Str
	}
	return ""
}

// Result is one answer of RunMulti.
type Result struct {
	Reply Reply
	Err   error
}

// Runner runs scripts. The engine's tests put a fake one in its place.
type Runner interface {
	// Run blocks until the server answered or the connection broke. ctx is for
	// its values alone: a command that was sent can't be taken back, so nothing
	// is gained by not waiting for its answer here.
	Run(ctx context.Context, cmd Command) (Reply, error)
	// RunMulti sends the commands together, to each node its own. It returns the answers
	// in their order, in the memory of out as far as that goes.
	RunMulti(ctx context.Context, cmds []Command, out []Result) []Result
	// Topology tells how keys are placed.
	Topology() Topology
}

// Topology is what the engine must know about the deployment.
type Topology struct {
	Cluster bool // keys live in slots
	Sharded bool // publish with SPUBLISH

	// Node names the node that a cluster's slot is on, "" when that is not known. It
	// does not block, and may be wrong for a while after a slot has moved. nil: not
	// known at all.
	Node func(slot uint16) string

	// Broke tells when a connection last ended, or a slot was found on another node than
	// before: what was answered until then may not hold any more. The connections of an
	// application's client are not seen. nil: not known at all.
	Broke func() time.Time
}

// Publish is the command that publishes an unlock message.
func (t Topology) Publish() string {
	if t.Sharded {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// Counts is "1" if the answer to a message counts all who got it, as the scripts take it: in a
// cluster without sharded channels it counts those of one node.
func (t Topology) Counts() string {
	if t.Cluster && !t.Sharded {
		return "0"
	}
	return "1"
}

// Conn is the Runner over a rueidis client. It is safe for concurrent use.
type Conn struct {
	client  rueidis.Client
	topo    Topology
	slots   slotTable       // where the slots are
	broke   *Instant        // see Topology.Broke
	silent  time.Duration   // how long a server may say nothing
	watch   *masterWatch    // nil: nothing to follow
	life    context.Context // of commands through a borrowed client: until Close
	leave   func()          // ends it; nil: the client is ours, and closed
	dial    *dialler        // of our client
	built   bool            // by a ClientBuilder, which may dial by itself
	unknown *stranger       // what its server is, if that was not there; nil: that is known
	demoted demotion        // of its only server
	known   *secrets        // of the client's options
}

// Client is the underlying client, for the subscriptions.
func (c *Conn) Client() rueidis.Client { return c.client }

// Topology implements Runner.
func (c *Conn) Topology() Topology {
	t := c.topo
	t.Broke = c.broke.Last
	if t.Cluster {
		t.Node = func(slot uint16) string { return c.slots.node(c.client, c.broke, slot) }
		t.Node(0) // asks
	}
	return t
}

// OnMove has moved called after the client, following its sentinels, has gone over
// to another master: what the old one answered before may not be known there. It is
// called from one goroutine, which ends with Close, and must not block for long.
// OnMove itself is called at most once.
func (c *Conn) OnMove(moved func()) {
	if c.watch != nil {
		c.watch.start(func() string { return masterAddr(c.client) }, moved)
	}
}

// OnMasters has tell called with the addresses of the cluster's masters whenever they were asked
// for: every 10 s at most, while commands are sent. It is called from one goroutine, which ends
// with Close, and must not block.
func (c *Conn) OnMasters(tell func(masters []string)) {
	c.slots.mu.Lock()
	defer c.slots.mu.Unlock()
	c.slots.tell = tell
}

// Close closes the client and its connections; a borrowed one stays open, and the
// commands under way are left to themselves.
func (c *Conn) Close() {
	c.slots.close()
	if c.watch != nil {
		c.watch.stop()
	}
	if c.leave != nil {
		c.leave()
		return
	}
	c.client.Close()
	c.dial.close()
}

// Run implements Runner.
func (c *Conn) Run(ctx context.Context, cmd Command) (r Reply, err error) {
	defer observe.Recovered(&err)
	ctx = c.lasting(ctx)
	if err := c.unknown.meet(); err != nil {
		return Reply{}, err
	}
	if cmd.Acks > 0 || cmd.Tell {
		return c.runMore(ctx, cmd)
	}
	return c.answer(ctx, cmd, c.client.Do(ctx, c.evalsha(cmd)))
}

// answer reads what came of a command that was sent by its script's name.
func (c *Conn) answer(ctx context.Context, cmd Command, res rueidis.RedisResult) (Reply, error) {
	r, err := c.parse(res)
	if isNoScript(err) {
		r, err = c.parse(c.client.Do(ctx, c.eval(cmd)))
	}
	if IsTryAgain(err) {
		r, err = c.halfway(ctx, cmd, err)
	}
	return r, spoiled(cmd, err)
}

// runMore sends the script and what is asked for behind it, on one connection.
func (c *Conn) runMore(ctx context.Context, cmd Command) (Reply, error) {
	do := c.client.DoMulti
	if cmd.Acks > 0 {
		// WAIT holds everything up behind it on its connection, and covers what was
		// written on that connection only. So it gets one of its own, which the
		// client library takes from its pool for a pipeline with a blocking command.
		// Nothing else waits there, so that a time limit harms nobody; without one
		// a frozen server would hold it for ever.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmd.AckTimeout+c.silent)
		defer cancel()
		if c.topo.Cluster {
			// A pipeline that meets a redirection would go on in two places, and the
			// WAIT that stays behind would count replicas that have nothing to
			// acknowledge. A node's own client follows no redirection: it is an error, and
			// the engine tries again at the slot's new place.
			_, nc := c.nodeOf(ctx, luascript.Slot(cmd.Keys[0]))
			if nc == nil {
				return Reply{}, rueidis.ErrNoSlot
			}
			do = nc.DoMulti
		}
	}
	who := Command{Script: luascript.Server, Keys: cmd.Keys[:1]}
	send := func(build func(Command) rueidis.Completed) []rueidis.RedisResult {
		multi := append(make([]rueidis.Completed, 0, 3), build(cmd))
		if cmd.Acks > 0 {
			multi = append(multi, c.client.B().Wait().Numreplicas(int64(cmd.Acks)).Timeout(cmd.AckTimeout.Milliseconds()).Build())
		}
		if cmd.Tell {
			multi = append(multi, build(who))
		}
		return do(ctx, multi...)
	}
	res := send(c.evalsha)
	r, err := c.parse(res[0])
	if isNoScript(err) {
		res = send(c.eval)
		r, err = c.parse(res[0])
	}
	if err != nil {
		if c.topo.Cluster && !cmd.Tell && (isRedirection(err) || IsTryAgain(err)) {
			c.slots.doubt()
			r, err = c.halfway(ctx, cmd, err)
		}
		return r, spoiled(cmd, err)
	}
	res = res[1:]
	if cmd.Acks > 0 {
		n, werr := res[0].AsInt64()
		r.Acked, r.Waits = int(n), werr
		res = res[1:]
	}
	if cmd.Tell {
		told, terr := c.answer(ctx, who, res[0])
		r.Server, r.ServerErr = Server{RunID: told.Str(1)}, terr
	}
	return r, nil
}

// RunMulti implements Runner.
func (c *Conn) RunMulti(ctx context.Context, cmds []Command, out []Result) []Result {
	ctx = c.lasting(ctx)
	out = append(out[:0], make([]Result, len(cmds))...)
	if err := c.unknown.meet(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	multi := make([]rueidis.Completed, 0, len(cmds))
	for i := range cmds {
		multi = append(multi, c.evalsha(cmds[i]))
	}
	for i, res := range c.client.DoMulti(ctx, multi...) {
		out[i].Reply, out[i].Err = c.answer(ctx, cmds[i], res)
	}
	return out
}

func (c *Conn) evalsha(cmd Command) rueidis.Completed {
	return c.client.B().Evalsha().Sha1(cmd.Script.SHA).Numkeys(int64(len(cmd.Keys))).Key(cmd.Keys...).Arg(cmd.Args...).Build()
}

func (c *Conn) eval(cmd Command) rueidis.Completed {
	return c.client.B().Eval().Script(cmd.Script.Body).Numkeys(int64(len(cmd.Keys))).Key(cmd.Keys...).Arg(cmd.Args...).Build()
}

// parse reads the answer to a script.
func (c *Conn) parse(res rueidis.RedisResult) (Reply, error) {
	r, err := parse(res)
	if err != nil {
		c.note(err)
	}
	return r, c.Clean(err)
}

// Clean is an error of the client's, without the passwords that a server may repeat in its words.
func (c *Conn) Clean(err error) error { return c.known.clean(err) }

func parse(res rueidis.RedisResult) (Reply, error) {
	msg, err := res.ToMessage()
	if err != nil {
		return Reply{}, err
	}
	if msg.IsInt64() {
		n, err := msg.AsInt64()
		return Reply{Code: n}, err
	}
	list, err := msg.ToArray()
	if err != nil {
		return Reply{}, fmt.Errorf("unexpected script reply: %w", err)
	}
	r := Reply{Vals: make([]Value, len(list))}
	for i := range list {
		switch m := &list[i]; {
		case m.IsInt64():
			r.Vals[i].Int, err = m.AsInt64()
		case !m.IsNil():
			r.Vals[i].Str, err = m.ToString()
		}
		if err != nil {
			return Reply{}, fmt.Errorf("unexpected script reply: %w", err)
		}
	}
	if len(r.Vals) > 0 {
		r.Code = r.Vals[0].Int
	}
	return r, nil
}

func isNoScript(err error) bool { return answers(err, "NOSCRIPT") }
