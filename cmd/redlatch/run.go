package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
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
	hideURL   bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `run acquires the lock NAME, runs COMMAND and frees the lock.

run exits with the command's exit status. It passes on signals (HUP, INT, QUIT, TERM, USR1,
USR2, WINCH); HUP and INT stay ignored, also by the command, if they were when run started, as
nohup has it. It sets in the command's environment:
  REDLATCH_LOCK       the name of the lock
  REDLATCH_TOKEN      the fencing token, with --fenced; else it is not set
  REDLATCH_CLIENT_ID  the client's id, the first part of the lock's owner
The rest of its environment is that of run, REDIS_URL with its password included; --hide-url leaves
that out.

Two runs never overlap, unless the lock is lost (the server is gone for too long, or an operator
freed the lock). Then the command gets TERM and after --grace KILL, and the exit status is 70: its
last actions may not have been exclusive. Where that matters, use --fenced, and let the place that
it writes to check the token. If run itself is killed, even with KILL, the command is ended the
same way, and the lock is free when its lease ends.

Without a terminal on standard input the command has its own process group, and signals go to
all of its processes. With a terminal the command stays in the terminal's group, so that it
can be used interactively: then run signals the command alone, and the keyboard's signals
reach it directly. On Windows the command is ended without a TERM, and survives a killed run.`,
		Example: `  redlatch run nightly-report --wait 0 --conflict-exit-code 0 -- /usr/local/bin/report
  redlatch run db-migrate --wait 5m --fenced -- sh -c 'migrate --token "$REDLATCH_TOKEN"'
  redlatch run cache --kind read -- tar czf /backup/cache.tgz /var/cache/app`,
		Args: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			switch {
			case at == -1 && len(args) < 2, at >= 0 && (at != 1 || len(args) < 2):
				return errors.New("run needs a lock name and, after --, a command: redlatch run NAME -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), f, cmd.Flags().Changed("wait"), args[0], args[1:])
		},
	}
	set := c.Flags()
	set.SetInterspersed(true)
	set.DurationVarP(&f.wait, "wait", "w", 0, "how long to wait for the lock; 0: one attempt (default: no limit)")
	set.BoolVarP(&f.noWait, "nonblock", "n", false, "the same as --wait 0")
	set.DurationVar(&f.lease, "lease", 0, "a fixed lease, never renewed; the lock is lost at its end (default: renewed while the command runs)")
	set.DurationVar(&f.leaseTime, "lease-time", redlatch.DefaultLeaseTime, "how long the lock stays taken when this process dies; renewed at a third of it")
	set.StringVarP(&f.kind, "kind", "k", "rlock", "rlock, fair, read or write")
	set.BoolVar(&f.fenced, "fenced", false, "ask for a fencing token, in REDLATCH_TOKEN")
	set.DurationVar(&f.grace, "grace", 10*time.Second, "how long after TERM the command is killed")
	set.IntVarP(&f.conflict, "conflict-exit-code", "E", exitBusy, "exit status when another owner holds the lock")
	set.BoolVar(&f.hideURL, "hide-url", false, "leave REDIS_URL out of the command's environment")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions([]string{"rlock", "fair", "read", "write"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// locker is the lock that the flags mean.
func (f runFlags) locker(c *redlatch.Client, name string) (redlatch.Locker, error) {
	var opts []redlatch.Option
	if f.fenced {
		opts = append(opts, redlatch.Fenced())
	}
	switch f.kind {
	case "rlock", "plain":
		return c.RLock(name, opts...), nil
	case "fair":
		return c.FairLock(name, opts...), nil
	case "read":
		return c.ReadWriteLock(name, opts...).ReadLock(), nil
	case "write":
		return c.ReadWriteLock(name, opts...).WriteLock(), nil
	}
	return nil, usageError(fmt.Sprintf("kind: %q is not one of rlock, fair, read, write", f.kind))
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
		return &statusError{exitNotFound, err}
	case err != nil:
		return &statusError{exitCantRun, err}
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heeded()...)
	defer signal.Stop(signals)

	client, err := a.open("run", func(c *redlatch.Config) { c.LeaseTime = f.leaseTime })
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := f.locker(client, name)
	if err != nil {
		return err
	}
	// It lives as long as the command: its end would end the hold's context.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h, err := acquire(ctx, cancel, l, f, bounded || f.noWait, signals)
	if err != nil {
		return acquireError(err, f)
	}
	status, err := a.under(h, f, client.ID(), program, command, signals)
	lost := context.Cause(h.Context())
	uerr := h.Unlock(context.WithoutCancel(ctx))
	switch {
	case errors.Is(lost, redlatch.ErrLeaseLost), errors.Is(uerr, redlatch.ErrLeaseLost):
		return &statusError{exitLost, fmt.Errorf("the lock %s was lost while the command ran; it ended with status %d", quote.Name(name), status)}
	case uerr != nil:
		fmt.Fprintf(a.std.err, "redlatch: the lock %s could not be released, it will be free when its lease ends: %s\n", quote.Name(name), message(uerr))
	}
	if err != nil || status != 0 {
		return &statusError{status, err}
	}
	return nil
}

// signalled is a wait that a signal ended.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "ended by signal " + s.String() }

// acquire waits for the lock. A signal that ends programs ends the wait.
func acquire(
	ctx context.Context, cancel context.CancelCauseFunc, l redlatch.Locker, f runFlags, bounded bool, signals <-chan os.Signal,
) (h redlatch.Hold, err error) {
	done := make(chan struct{})
	go func() { // ends with the acquisition, which ctx ends
		defer close(done)
		var opts []redlatch.AcquireOption
		if f.lease > 0 {
			opts = append(opts, redlatch.WithLease(f.lease))
		}
		if bounded {
			h, err = l.TryLock(ctx, f.wait, f.lease)
		} else {
			h, err = l.Lock(ctx, opts...)
		}
	}()
	for {
		select {
		case <-done:
			var sig signalled
			if !errors.As(context.Cause(ctx), &sig) {
				return h, err
			}
			if err == nil {
				_ = h.Unlock(context.WithoutCancel(ctx)) // at worst it is free at the end of its lease
			}
			return nil, sig
		case s := <-signals:
			if ends(s) {
				cancel(signalled{s})
			}
		}
	}
}

// acquireError gives an acquisition that failed its status.
func acquireError(err error, f runFlags) error {
	var sig signalled
	switch {
	case errors.As(err, &sig):
		n, _ := sig.Signal.(syscall.Signal)
		return &statusError{exitSignal + int(n), nil}
	case errors.Is(err, redlatch.ErrNotAcquired):
		return &statusError{f.conflict, err}
	}
	return err
}

// under runs the command while h is held, and returns its exit status.
func (a *app) under(h redlatch.Hold, f runFlags, clientID, program string, command []string, signals <-chan os.Signal) (int, error) {
	cmd := &exec.Cmd{Path: program, Args: command, Stdin: a.std.in, Stdout: a.std.out, Stderr: a.std.err}
	cmd.Env = append(f.inherited(), "REDLATCH_LOCK="+h.Name(), "REDLATCH_CLIENT_ID="+clientID)
	if f.fenced {
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
	for {
		select {
		case err := <-exited:
			if lost == nil {
				job.rest(kill)
			}
			return exitStatus(cmd, err)
		case s := <-signals:
			job.pass(s)
		case <-lost:
			lost = nil
			fmt.Fprintf(a.std.err, "redlatch: the lock %s was lost, ending the command: %s\n", quote.Name(h.Name()), message(context.Cause(h.Context())))
			job.end()
			t := time.NewTimer(f.grace)
			defer t.Stop()
			kill = t.C
		case <-kill:
			job.kill()
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
