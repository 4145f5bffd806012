package inspect

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// Inspector is a Client's view of all locks. It is safe for concurrent use.
type Inspector struct {
	cfg     Config
	conn    *conn.Conn
	clients clients

	mu     sync.Mutex
	closed bool           // guarded by mu
	calls  sync.WaitGroup // calls under way and the commands that they left
	ends   chan struct{}
}

// Config is what an Inspector knows of its Client.
type Config struct {
	Addr     string                   // of the servers, for errors
	Map      func(name string) string // name -> key; nil: as it is
	Prefix   string                   // of all keys
	Timeout  time.Duration            // for one call
	Observer observe.Observer         // nil: nobody looks
	Log      *slog.Logger
	ID       string // of the Client that forces, for the log
}

// New makes an Inspector. Close must come before that of the connection, Wait after.
func New(cfg Config, c *conn.Conn) *Inspector {
	return &Inspector{cfg: cfg, conn: c, ends: make(chan struct{})}
}

// Close lets every call return ErrClosed.
func (i *Inspector) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.closed = true
		close(i.ends)
	}
}

// Wait blocks until nothing of the calls is left; the connection has been closed.
func (i *Inspector) Wait() { i.calls.Wait() }

// begin counts a call in.
func (i *Inspector) begin(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return lock.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	i.calls.Add(1)
	return nil
}

// key maps a name and checks it, as a lock of that name does.
func (i *Inspector) key(name string) (string, error) {
	key := name
	if i.cfg.Map != nil && name != "" {
		if key = i.cfg.Map(name); key == "" {
			return "", &lock.InvalidNameError{Name: name, Reason: "the name mapper made it empty"}
		}
	}
	if reason := luascript.CheckKey(key, i.conn.Topology().Cluster); reason != "" {
		return "", &lock.InvalidNameError{Name: name, Reason: reason}
	}
	return key, nil
}

// Inspect looks at the lock of this name.
func (i *Inspector) Inspect(ctx context.Context, name string) (lock.Inspection, error) {
	ctx, end := i.operation(ctx, name, observe.State, "")
	in, err := i.inspect(ctx, name)
	end(err)
	return in, err
}

func (i *Inspector) inspect(ctx context.Context, name string) (lock.Inspection, error) {
	key, err := i.key(name)
	if err != nil {
		return lock.Inspection{}, err
	}
	if err := i.begin(ctx); err != nil {
		return lock.Inspection{}, err
	}
	defer i.calls.Done()
	r, err := i.ask(ctx, name, "inspect", LookCommand(i.conn.Topology(), key, Most), conn.Ambiguous)
	if err != nil {
		return lock.Inspection{}, err
	}
	in, err := ReadLook(r, name, key)
	if err != nil {
		return in, err
	}
	one := []lock.Inspection{in}
	i.clients.fill(ctx, i, one)
	return one[0], nil
}

// ForceUnlock takes the lock away from its holders; see ForceCommand.
func (i *Inspector) ForceUnlock(ctx context.Context, name string, set lock.ForceSettings) (Evicted, error) {
	ctx, end := i.operation(ctx, name, observe.ForceUnlock, set.Owner)
	e, err := i.forceUnlock(ctx, name, set)
	end(err, e.Note())
	i.tell(ctx, name, set.Owner, e, err)
	return e, err
}

func (i *Inspector) forceUnlock(ctx context.Context, name string, set lock.ForceSettings) (Evicted, error) {
	key, err := i.key(name)
	if err != nil {
		return Evicted{}, err
	}
	if set.OneOwner && set.Owner == "" {
		return Evicted{}, &lock.InvalidOptionError{Option: "IfOwner", Reason: "the owner is empty; without the option all holders are evicted"}
	}
	if err := i.begin(ctx); err != nil {
		return Evicted{}, err
	}
	defer i.calls.Done()
	// A command that may have run is not sent again, unless it names whom to evict: it
	// could evict the next holder.
	worst := conn.Unsent
	if set.OneOwner {
		worst = conn.Ambiguous
	}
	r, err := i.ask(ctx, name, "force_unlock", ForceCommand(i.conn.Topology(), key, set.Owner, Any), worst)
	if err != nil {
		return Evicted{}, err
	}
	e, err := ReadForce(r, name, set.Owner)
	if err == nil && e.Refused != nil {
		err = &lock.ServerError{Name: name, Op: "notify waiters of a forced unlock", Err: e.Refused}
	}
	return e, err
}

// tell logs what was done to a lock, and by whom, in the words of engine.Lock.ForceUnlock.
func (i *Inspector) tell(ctx context.Context, name, wanted string, e Evicted, err error) {
	about := []any{"lock", name, "kind", string(e.Kind), "by", i.cfg.ID}
	if wanted != "" {
		about = append(about, "wanted", wanted)
	}
	if o := i.cfg.Observer; o != nil {
		if trace, span := o.TraceOf(ctx, nil); trace != "" {
			about = append(about, "trace_id", trace, "span_id", span)
		}
	}
	switch {
	case err != nil && e.Count == 0:
		i.cfg.Log.WarnContext(ctx, "redlatch: forced unlock failed", append(about, "error", err)...)
	case e.Count == 0:
		i.cfg.Log.InfoContext(ctx, "redlatch: forced unlock found nothing held", about...)
	default:
		about = append(about, "owner", e.Owner(), "holds", e.Count)
		if e.Refused != nil {
			about = append(about, "error", e.Refused)
		}
		i.cfg.Log.WarnContext(ctx, "redlatch: lock taken away by force", about...)
	}
}

func (i *Inspector) operation(ctx context.Context, name, op, owner string) (context.Context, observe.End) {
	if o := i.cfg.Observer; o != nil {
		return o.Operation(ctx, observe.Lock{Name: name, Type: "any"}, op, owner)
	}
	return ctx, observe.Ignore
}

// errNoAnswer is why a call ended when the server said nothing.
var errNoAnswer = errors.New("no answer in time")

// ask runs a script until it is answered, at most for the Client's UnlockTimeout.
// Failures up to worst are tried again.
func (i *Inspector) ask(ctx context.Context, name, op string, cmd conn.Command, worst conn.Class) (conn.Reply, error) {
	res, err := i.run(ctx, name, op, worst, func() ([]conn.Result, error) {
		cctx, end := ctx, func(error) {}
		if o := i.cfg.Observer; o != nil {
			cctx, end = o.Command(ctx, cmd.Script.Name)
		}
		r, err := i.conn.Run(cctx, cmd)
		end(err)
		return []conn.Result{{Reply: r}}, err
	})
	if err != nil {
		return conn.Reply{}, err
	}
	return res[0].Reply, nil
}

// run calls f, which blocks until the server answers or the connection breaks, and
// waits for it no longer than the call may take. A call that is left ends by itself.
func (i *Inspector) run(ctx context.Context, name, op string, worst conn.Class, f func() ([]conn.Result, error)) ([]conn.Result, error) {
	limit := time.NewTimer(i.cfg.Timeout)
	defer limit.Stop()
	type answer struct {
		res []conn.Result
		err error
	}
	last := errNoAnswer
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answered := make(chan answer, 1)
		i.calls.Add(1) // of a call that is counted in
		go func() {    // ends with the answer, or with the connection
			defer i.calls.Done()
			res, err := f()
			answered <- answer{res, err}
		}()
		retry := false
		select {
		case a := <-answered:
			if a.err == nil {
				return a.res, nil
			}
			if conn.IsPermanent(a.err) {
				return nil, &lock.ServerError{Name: name, Op: op, Err: a.err}
			}
			last = a.err
			retry = conn.Classify(a.err) <= worst && !errors.Is(a.err, rueidis.ErrClosing)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-i.ends:
			return nil, lock.ErrClosed
		case <-limit.C:
			return nil, i.unavailable(name, op, last)
		}
		if !retry {
			return nil, i.unavailable(name, op, last)
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, ctx.Err()
		case <-i.ends:
			again.Stop()
			return nil, lock.ErrClosed
		case <-limit.C:
			again.Stop()
			return nil, i.unavailable(name, op, last)
		}
	}
}

func (i *Inspector) unavailable(name, op string, err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return lock.ErrClosed
	}
	return &lock.UnavailableError{Name: name, Op: op, Nodes: []lock.NodeError{{Node: i.cfg.Addr, Err: err}}}
}
