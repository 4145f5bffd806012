package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// Inspector is a Client's view of all locks. It is safe for concurrent use.
type Inspector struct {
	cfg     Config
	conn    *conn.Conn
	clients clients

	mu    sync.Mutex      // between the last call and Close
	calls sync.WaitGroup  // calls under way and the commands that they left
	life  context.Context // ends with Close
	end   context.CancelFunc
}

// Config is what an Inspector knows of its Client.
type Config struct {
	Addr     string                   // of the servers, for errors
	Map      func(name string) string // name -> key; nil: as it is
	Prefix   string                   // of all keys
	Timeout  time.Duration            // for one call
	Observer observe.Observer         // nil: nobody looks
	News     *observe.News            // hears of what no call waits for any more
	Log      *slog.Logger
	ID       string // of the Client that forces, for the log
	Name     string // of that Client
}

// New makes an Inspector. Close must come before that of the connection, Wait after.
func New(cfg Config, c *conn.Conn) *Inspector {
	i := &Inspector{cfg: cfg, conn: c}
	i.life, i.end = context.WithCancel(context.Background())
	return i
}

// Close lets every call return ErrClosed.
func (i *Inspector) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.end()
}

// Wait blocks until nothing of the calls is left; the connection has been closed.
func (i *Inspector) Wait() { i.calls.Wait() }

// Why the ctx of a call ended, if not with the caller's.
var (
	errNoAnswer = errors.New("no answer in time")
	errClosing  = errors.New("the client is being closed")
)

// begin counts a call in, and bounds it as a whole, however many questions it asks: its ctx ends
// with the caller's, after the Client's UnlockTimeout, and with the Inspector; see over. done
// ends the call.
func (i *Inspector) begin(ctx context.Context) (bounded context.Context, done func(), err error) {
	below, forget := context.WithCancel(ctx) // which may be a type of the user's: only this goroutine asks it
	if err := i.enter(ctx.Err()); err != nil {
		forget()
		return nil, nil, err
	}
	inner, stop := context.WithCancelCause(below)
	unhook := context.AfterFunc(i.life, func() { stop(errClosing) })
	inner, cancel := context.WithTimeoutCause(inner, i.cfg.Timeout, errNoAnswer)
	return conn.Undated(inner), func() {
		defer i.calls.Done()
		unhook()
		cancel()
		stop(nil)
		forget()
	}, nil
}

// enter counts a call in whose ctx has ended with that, if it has.
func (i *Inspector) enter(ended error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.life.Err() != nil {
		return lock.ErrClosed
	}
	if ended == nil {
		i.calls.Add(1)
	}
	return ended
}

// over is the error of a call whose ctx has ended; last is why the server at addr had not answered
// until then.
func (i *Inspector) over(ctx context.Context, name, op, addr string, last error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errClosing):
		return lock.ErrClosed
	case errors.Is(cause, errNoAnswer):
		return i.unavailable(name, op, addr, last)
	}
	return ctx.Err()
}

func (i *Inspector) key(name string) (string, error) {
	return KeyOf(name, i.cfg.Map, i.conn.Topology().Cluster)
}

// KeyOf maps the name of a lock, if there is a mapper, and checks the key.
func KeyOf(name string, mapper func(string) string, cluster bool) (string, error) {
	key := name
	if mapper != nil && name != "" {
		if key = mapper(name); key == "" {
			return "", &lock.InvalidNameError{Name: name, Reason: "the name mapper made it empty"}
		}
	}
	if reason := luascript.CheckKey(key, cluster); reason != "" {
		return "", &lock.InvalidNameError{Name: name, Reason: reason}
	}
	return key, nil
}

// anyLock is a lock of a kind that is not known.
func anyLock(name string) observe.Lock { return observe.Lock{Name: name, Type: "any"} }

// Inspect looks at the lock of this name.
func (i *Inspector) Inspect(ctx context.Context, name string) (in lock.Inspection, err error) {
	ctx, end := observe.Operation(ctx, i.cfg.Observer, anyLock(name), observe.State, "")
	err = observe.ErrPanic
	defer func() { end(err) }()
	return i.inspect(ctx, name)
}

func (i *Inspector) inspect(ctx context.Context, name string) (lock.Inspection, error) {
	key, err := i.key(name)
	if err != nil {
		return lock.Inspection{}, err
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return lock.Inspection{}, err
	}
	defer done()
	PaceOf(ctx).owe(perLock)
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

// LastRun looks at the record of the job of this name.
func (i *Inspector) LastRun(ctx context.Context, name string) (run lock.OnceRun, err error) {
	key, err := i.key(name)
	if err != nil {
		return run, err
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return run, err
	}
	defer done()
	r, err := i.ask(ctx, name, "inspect", conn.Command{Script: luascript.OnceLast, Keys: []string{luascript.OnceKey(key)}}, conn.Ambiguous)
	began := plausible(r.Int(1))
	if err != nil || r.Code != 1 || began.IsZero() || r.Int(2) < 0 { // a record has a TTL
		return run, err
	}
	run.Began, run.Due = began.UTC(), plausible(r.Int(4)+r.Int(2)).UTC()
	if client, _, ok := strings.Cut(r.Str(3), "."); ok {
		run.ClientID = client
		i.clients.find(ctx, i, party{&run.Process, run.Began})
	}
	return run, nil
}

// ForceUnlock takes the lock away from its holders; see ForceCommand.
func (i *Inspector) ForceUnlock(ctx context.Context, name string, set settings.Force) (Evicted, error) {
	ctx, end := observe.Operation(ctx, i.cfg.Observer, anyLock(name), observe.ForceUnlock, strings.Join(set.Owners, ", "))
	e, err := func() (e Evicted, err error) {
		err = observe.ErrPanic
		defer func() { end(err, e.Note()) }()
		return i.forceUnlock(ctx, name, set)
	}()
	i.tell(ctx, name, set, e, err)
	return e, err
}

func (i *Inspector) forceUnlock(ctx context.Context, name string, set settings.Force) (Evicted, error) {
	key, err := i.key(name)
	if err != nil {
		return Evicted{}, err
	}
	switch {
	case slices.Contains(set.Owners, ""):
		return Evicted{}, &lock.InvalidOptionError{Option: "IfOwner", Reason: "an owner is empty; without the option all holders are evicted"}
	case len(set.Owners) > Most:
		return Evicted{}, &lock.InvalidOptionError{Option: "IfOwner", Reason: fmt.Sprintf("it takes at most %d owners", Most)}
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return Evicted{}, err
	}
	defer done()
	// A command that may have run is not sent again, unless it names whom to evict: it
	// could evict the next holder.
	worst := conn.Unsent
	if set.Bound {
		worst = conn.Ambiguous
	}
	cmd := ForceCommand(i.conn.Topology(), key, Any, set)
	r, err := i.ask(ctx, name, "force_unlock", cmd, worst)
	if err != nil {
		return Evicted{}, err
	}
	return ReadForce(cmd, r, name, set.Owners)
}

// tell logs what was done to a lock, and by whom, in the words of engine.Lock.ForceUnlock.
func (i *Inspector) tell(ctx context.Context, name string, set settings.Force, e Evicted, err error) {
	about := []any{"lock", name, "kind", string(e.Kind), "by", i.cfg.ID}
	if wanted := strings.Join(set.Owners, ", "); wanted != "" {
		about = append(about, "wanted", quote.Text(wanted))
	}
	if set.Recorded {
		about = append(about, "user", quote.Text(set.By), "reason", quote.Text(set.Reason))
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

// ask runs a script until it is answered, for as long as ctx, the call's, lasts. Failures up to
// worst are tried again.
func (i *Inspector) ask(ctx context.Context, name, op string, cmd conn.Command, worst conn.Class) (conn.Reply, error) {
	last := errNoAnswer
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		cctx := ctx
		var end func(error)
		if o := i.cfg.Observer; o != nil {
			cctx, end = o.Command(ctx, cmd.Script.Name, time.Time{})
		}
		r, err := await(ctx, i, end, func() (conn.Reply, error) { return i.conn.Run(cctx, cmd) })
		switch {
		case err == nil:
			return r, nil
		case conn.IsPermanent(err):
			return conn.Reply{}, &lock.ServerError{Name: name, Op: op, Err: err}
		case !errors.Is(err, errNoAnswer) && !errors.Is(err, ctx.Err()):
			last = err
		}
		if ctx.Err() == nil && (conn.Classify(err) > worst || errors.Is(err, rueidis.ErrClosing)) {
			return conn.Reply{}, i.unavailable(name, op, i.cfg.Addr, last)
		}
		if !sleep(ctx, pause) {
			return conn.Reply{}, i.over(ctx, name, op, i.cfg.Addr, last)
		}
	}
}

// sleep reports whether ctx lasted that long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// await calls f, which asks a server, in a goroutine of its own, and waits for it for as long as
// ctx, the call's, lasts: errNoAnswer then, and f is left. An observer hears of the end by end, if
// it is not nil: here, or in the background if f was left.
func await[T any](ctx context.Context, i *Inspector, end func(error), f func() (T, error)) (T, error) {
	type answer struct {
		val T
		err error
	}
	var decided atomic.Bool // whether it is answered or left
	answered := make(chan answer, 1)
	i.calls.Add(1) // of a call that is counted in
	go func() {    // ends with the answer, or with the connection
		defer i.calls.Done()
		val, err := asked(f)
		err = i.conn.Clean(err)
		answered <- answer{val, err}
		if !decided.CompareAndSwap(false, true) && end != nil {
			i.cfg.News.Tell(func() { end(err) })
		}
	}()
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return a.val, errNoAnswer
		}
		a = <-answered
	}
	if end != nil {
		end(a.err)
	}
	return a.val, a.err
}

// asked is f, in a goroutine of ours.
func asked[T any](f func() (T, error)) (val T, err error) {
	defer observe.Recovered(&err)
	return f()
}

func (i *Inspector) unavailable(name, op, addr string, err error) error {
	if i.life.Err() != nil {
		return lock.ErrClosed
	}
	return &lock.UnavailableError{Name: name, Op: op, Nodes: []lock.NodeError{{Node: addr, Err: err}}}
}
