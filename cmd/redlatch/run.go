package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// runFlags are the flags of run.
type runFlags struct {
	wait      time.Duration
	noWait    bool
	lease     time.Duration
	leaseTime time.Duration
	kind      string
	fenced    bool
	grace     time.Duration
	conflict  int
	quiet     bool // about a conflict: its exit status was chosen, and says it
	hideURL   bool
}

func (a *app) runCommand() *cobra.Command {
	f := runFlags{kind: "reentrant"}
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `run acquires the lock NAME, runs COMMAND, frees the lock and exits with the command's exit status. It passes on
the signals HUP, INT, QUIT, TERM, USR1, USR2 and WINCH; those that are ignored, as HUP under nohup, stay so. The
command gets the environment of run (with REDIS_URL and its password, unless --hide-url is given), and
  REDLATCH_LOCK       the name of the lock
  REDLATCH_TOKEN      the fencing token, with --fenced; else, and for readers before the first writer, it is not set
  REDLATCH_CLIENT_ID  the client's id, the first part of the lock's owner

Two runs never overlap, unless the lock is lost (the server is gone for too long, or an operator freed the lock).
Then the command gets TERM and after --grace KILL, and the exit status is 70: its last actions may not have been
exclusive. Where that matters, use --fenced, and let the place that it writes to check the token. If run itself is
killed, even with KILL, the command is ended the same way, and the lock is free when its lease ends. When run gets
TERM, it keeps the lock until the command has ended; --grace counts then, too.

Without a terminal on standard input the command has its own process group, and signals go to all of its processes.
With one, run signals the command alone, and the keyboard's signals reach it directly. On Windows the command is
ended without a TERM, and survives a killed run.`,
		Example: `  redlatch run nightly-report --wait 0 --conflict-exit-code 0 -- /usr/local/bin/report
  redlatch run db-migrate --wait 5m --fenced -- sh -c 'migrate --token "$REDLATCH_TOKEN"'
  redlatch run cache --kind read -- tar czf /backup/cache.tgz /var/cache/app`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) < 2 || at >= 0 && at != 1 {
				return errors.New("run needs a lock name and, after --, a command: redlatch run NAME -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.quiet = cmd.Flags().Changed("conflict-exit-code")
			return a.run(cmd.Context(), f, cmd.Flags().Changed("wait"), args[0], args[1:])
		},
	}
	set := c.Flags()
	set.DurationVarP(&f.wait, "wait", "w", 0, "how long to wait for the lock; 0: one attempt (default: no limit)")
	set.BoolVarP(&f.noWait, "nonblock", "n", false, "the same as --wait 0")
	set.DurationVar(&f.lease, "lease", 0, "a fixed lease, never renewed; the lock is lost at its end (default: renewed while the command runs)")
	set.DurationVar(&f.leaseTime, "lease-time", redlatch.DefaultLeaseTime, "how long the lock stays taken when this process dies; renewed at a third of it")
	choice(c, &f.kind, "kind", "k", "reentrant (the default), fair, read or write", "reentrant", "fair", "read", "write")
	set.BoolVar(&f.fenced, "fenced", false, "ask for a fencing token, in REDLATCH_TOKEN")
	set.DurationVar(&f.grace, "grace", 10*time.Second, "how long after TERM, also one that run gets, the command is killed")
	set.IntVarP(&f.conflict, "conflict-exit-code", "E", exitBusy, "exit status when another owner holds the lock; then nothing is written")
	set.BoolVar(&f.hideURL, "hide-url", false, "leave REDIS_URL out of the command's environment")
	return c
}

func (a *app) run(ctx context.Context, f runFlags, bounded bool, name string, command []string) error {
	switch {
	case f.wait < 0, f.lease < 0, f.grace < 0:
		return usageError("wait, lease and grace can't be negative")
	case f.conflict < 0 || f.conflict > 255:
		return usageError("conflict-exit-code: 0 to 255")
	case f.noWait && bounded && f.wait != 0:
		return usageError("nonblock and wait exclude each other")
	}
	name, err := given("name", name)
	if err != nil {
		return err
	}
	// Found before the lock is taken: a wrong name must not cost a wait.
	program, err := exec.LookPath(command[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return &statusError{err, exitNotFound}
	case err != nil:
		return &statusError{err, exitCantRun}
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded()...)
	defer signal.Stop(signals)

	client, err := a.open("run", func(c *redlatch.Config) { c.LeaseTime = f.leaseTime })
	if err != nil {
		return err
	}
	defer client.Close()
	var opts []redlatch.Option
	if f.fenced {
		opts = append(opts, redlatch.Fenced())
	}
	plain, rw := client.RLock(name, opts...), client.ReadWriteLock(name, opts...)
	l := map[string]redlatch.Locker{
		"reentrant": plain, "fair": client.FairLock(name, opts...), "read": rw.ReadLock(), "write": rw.WriteLock(),
	}[f.kind]
	h, err := acquire(ctx, l, f, bounded || f.noWait, signals)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		if f.quiet {
			err = errSaid
		}
		err = &statusError{err, f.conflict}
	}
	if err != nil {
		return err
	}
	status, err := a.under(h, f, client.ID(), program, command, signals)
	lost := context.Cause(h.Context())
	uerr := h.Unlock(context.WithoutCancel(ctx))
	switch {
	case errors.Is(lost, redlatch.ErrLeaseLost), errors.Is(uerr, redlatch.ErrLeaseLost):
		return &statusError{fmt.Errorf("the lock %s was lost while the command ran; it ended with status %d", quote.Name(name), status), exitLost}
	case uerr != nil:
		fmt.Fprintf(a.std.err, "redlatch: the lock %s could not be released, it will be free when its lease ends: %s\n", quote.Name(name), message(uerr))
	}
	if err != nil || status != 0 {
		return &statusError{cmp.Or(err, errSaid), status}
	}
	return nil
}

// acquire waits for the lock. A signal that ends programs ends the wait. The hold's context ends with ctx.
func acquire(ctx context.Context, l redlatch.Locker, f runFlags, bounded bool, signals <-chan os.Signal) (h redlatch.Hold, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	acquired := make(chan struct{})
	var listens sync.WaitGroup
	listens.Go(func() { // ends with the acquisition
		for {
			select {
			case <-acquired:
				return
			case s := <-signals:
				if n, _ := s.(syscall.Signal); ends(s) {
					cancel(&statusError{errSaid, exitSignal + int(n)})
				}
			}
		}
	})
	if bounded {
		h, err = l.TryLock(ctx, f.wait, f.lease)
	} else {
		h, err = l.Lock(ctx, redlatch.WithLease(f.lease))
	}
	close(acquired)
	listens.Wait()
	if signalled := (*statusError)(nil); errors.As(context.Cause(ctx), &signalled) {
		if err == nil {
			_ = h.Unlock(context.WithoutCancel(ctx)) // at worst it is free at the end of its lease
		}
		return nil, signalled
	}
	return h, err
}

// under runs the command while h is held, and returns its exit status.
func (a *app) under(h redlatch.Hold, f runFlags, clientID, program string, command []string, signals <-chan os.Signal) (int, error) {
	cmd := &exec.Cmd{Path: program, Args: command, Stdin: a.std.in, Stdout: a.std.out, Stderr: a.std.err}
	cmd.Env = append(f.inherited(), "REDLATCH_LOCK="+h.Name(), "REDLATCH_CLIENT_ID="+clientID)
	if f.fenced && h.Token() > 0 { // a store could take a 0 for a token
		cmd.Env = append(cmd.Env, "REDLATCH_TOKEN="+strconv.FormatUint(h.Token(), 10))
	}
	job := newJob(cmd, file(a.std.in))
	g, err := startGuard(f.grace)
	if err != nil {
		return exitError, fmt.Errorf("the guard process of the command did not start: %w", err)
	}
	defer g.release()
	if err := job.start(g); err != nil {
		return exitCantRun, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // ends with the command

	lost := h.Context().Done()
	var kill <-chan time.Time
	limit := func() {
		if kill == nil {
			kill = time.After(f.grace)
		}
	}
	for {
		select {
		case err := <-exited:
			if kill != nil {
				job.rest(kill)
			}
			return exitStatus(cmd, err)
		case s := <-signals:
			job.pass(s)
			if s == syscall.SIGTERM {
				limit()
			}
		case <-lost:
			lost = nil
			fmt.Fprintf(a.std.err, "redlatch: the lock %s was lost, ending the command: %s\n", quote.Name(h.Name()), message(context.Cause(h.Context())))
			job.end()
			limit()
		case <-kill:
			job.kill()
			kill = time.After(time.Second) // what is dead may stay as a zombie: rest must not wait for its end
		}
	}
}

// inherited is what the command gets of run's environment. The token of a run around this one is of another lock.
func (f runFlags) inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "REDLATCH_TOKEN" || f.hideURL && name == "REDIS_URL"
	})
}

// exitStatus is that of a command that ended, as a shell has it.
func exitStatus(cmd *exec.Cmd, err error) (int, error) {
	if cmd.ProcessState == nil {
		return exitError, err
	}
	if n := endedBy(cmd.ProcessState); n > 0 {
		return exitSignal + n, nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
