package testbed

import (
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// child is a process that was started here. Its methods are safe for
// concurrent use.
type child struct {
	pid  int
	proc *os.Process
	done chan struct{} // closed once the process has been reaped
	err  error         // of Wait; valid after done

	killed atomic.Bool // ended on purpose
}

// startChild starts cmd and reaps it when it ends.
//
// The kernel sends the parent-death signal when the *thread* that started the
// process ends, so that thread belongs to this goroutine for as long as the
// child lives. The goroutine ends with the child.
func startChild(cmd *exec.Cmd) (*child, error) {
	dieWithParent(cmd)
	c := &child{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.proc, c.pid = cmd.Process, cmd.Process.Pid
		started <- nil
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// exited reports whether the process has ended.
func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// status says how the process ended; valid after done.
func (c *child) status() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}

// kill ends the process at once, frozen or not, and waits until it is gone.
func (c *child) kill() {
	c.killed.Store(true)
	// An error means that it has ended already, which done tells as well.
	_ = c.proc.Kill()
	<-c.done
}

// stop asks the process to end and kills it when it takes longer than grace.
func (c *child) stop(grace time.Duration) {
	if c.exited() {
		return
	}
	c.killed.Store(true)
	_ = thaw(c.proc) // Where it can't be frozen there is nothing to thaw.
	if terminate(c.proc) == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.done:
			return
		case <-timer.C:
		}
	}
	c.kill()
}

// freeze stops the process (SIGSTOP) and returns once it really stands still.
func (c *child) freeze() error {
	if err := freeze(c.proc); err != nil {
		return err
	}
	return until(time.Now().Add(patience), func() error {
		if c.exited() {
			return nil
		}
		return frozen(c.pid)
	})
}
