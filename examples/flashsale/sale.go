package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

// killLease is the lease of -kill: nobody wants to wait for half a minute.
const killLease = 2 * time.Second

// sale is one run of one strategy, as the parent sees it.
type sale struct {
	load
	spec     spec
	server   *demoserver.Server
	kill     bool
	progress func(served int) // nil: nobody looks

	mu     sync.Mutex
	served []int   // guarded by mu; by process
	crash  *crash  // guarded by mu; what happened, with kill
	row    outline // guarded by mu while the workers run
}

// crash is a worker's death in the middle of a sale.
type crash struct {
	pid     int
	at      time.Time
	shelf   int
	stall   time.Duration // until somebody else entered that shelf
	resumed bool
}

// outline is what came out of a sale.
type outline struct {
	spec    spec
	audit   audit
	took    time.Duration // from the start to the last order
	lasted  time.Duration // from the start until all were served
	results []result
	crash   *crash
}

// run opens the shop, lets the workers sell, and looks through the books.
func (s *sale) run(ctx context.Context) (outline, error) {
	s.row.spec = s.spec
	client, err := s.server.Client()
	if err != nil {
		return s.row, fmt.Errorf("connect: %w", err)
	}
	defer client.Close()
	// A tag for each strategy, so that none finds what another has left.
	tag := fmt.Sprintf("%s:%s", s.server.Tag, s.spec.name)
	books := &shop{load: s.load, redis: client, tag: tag, shelves: s.spec.shelves, repair: s.repair()}
	if err := books.open(ctx); err != nil {
		return s.row, err
	}
	defer func() { // also when ctx has ended: the server may be somebody else's
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := books.close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "flashsale: clean up:", err)
		}
	}()
	if err := s.sell(ctx, tag); err != nil {
		return s.row, err
	}
	s.row.audit, err = books.audit(ctx)
	return s.row, err
}

// repair says whether sales may be found half done. A strategy that does not
// keep others out can't repair anything: it would see its neighbour's sale.
func (s *sale) repair() bool { return s.kill && s.spec.exact }

// sell starts the workers, all at the same moment, and waits for them.
func (s *sale) sell(ctx context.Context, tag string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // one that fails ends the others
	s.served = make([]int, s.Processes)
	var workers []*process
	for i := range s.Processes {
		j := job{
			load: s.load, URL: s.server.URL, Tag: tag, Strategy: s.spec.name,
			Process: i, Progress: s.progress != nil,
		}
		if s.kill {
			j.Lease = killLease
			j.Repair = s.repair()
			if i == 0 {
				j.DieAt = 20
			}
		}
		p, err := startProcess(ctx, j)
		if err != nil {
			return err
		}
		workers = append(workers, p)
	}
	for _, p := range workers {
		if m, err := p.next(); err != nil || !m.Ready {
			return fmt.Errorf("worker %d is not ready: %w", p.job.Process, err)
		}
	}

	started := time.Now()
	errs := make(chan error, len(workers))
	for _, p := range workers {
		if err := p.start(); err != nil {
			return err
		}
		go func() { // ends with its worker, which ends with ctx
			err := s.follow(ctx, p)
			if err != nil {
				cancel()
			}
			errs <- err
		}()
	}
	var failures []error
	for range workers {
		failures = append(failures, <-errs)
	}
	s.finish(started)
	return errors.Join(failures...)
}

// follow listens to a worker until its result. One that stands in the middle
// of a sale to be killed is killed, and replaced as a supervisor would do: the
// new process serves the same buyers again, also those who have an order.
func (s *sale) follow(ctx context.Context, p *process) error {
	for {
		m, err := p.next()
		if err != nil {
			return err
		}
		switch {
		case m.Inside != nil:
			p.kill()
			s.mu.Lock()
			s.crash = &crash{pid: p.cmd.Process.Pid, at: time.Now(), shelf: m.Inside.Shelf}
			s.row.results = append(s.row.results, result{Commands: m.Inside.Commands})
			s.mu.Unlock()
			j := p.job
			j.DieAt = 0
			if p, err = startProcess(ctx, j); err != nil {
				return err
			}
			if err := p.start(); err != nil {
				return err
			}
		case m.Result != nil:
			s.mu.Lock()
			s.row.results = append(s.row.results, *m.Result)
			s.mu.Unlock()
			return p.wait()
		case m.Served > 0:
			s.mu.Lock()
			s.served[p.job.Process] = m.Served
			sum := 0
			for _, n := range s.served {
				sum += n
			}
			s.mu.Unlock()
			if s.progress != nil {
				s.progress(sum)
			}
		}
	}
}

// finish adds up what needs all results.
func (s *sale) finish(started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	for _, r := range s.row.results {
		if r.LastSale.After(last) {
			last = r.LastSale
		}
		if s.crash == nil {
			continue
		}
		for _, e := range r.Entries {
			stall := e.At.Sub(s.crash.at)
			if e.Shelf != s.crash.shelf || stall < 0 {
				continue
			}
			if !s.crash.resumed || stall < s.crash.stall {
				s.crash.stall, s.crash.resumed = stall, true
			}
		}
	}
	s.row.took, s.row.lasted = last.Sub(started), time.Since(started)
	s.row.crash = s.crash
}

// process is a running worker.
type process struct {
	job   job
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Reader
}

// startProcess runs this program once more, as a worker. It is killed when ctx
// ends, and ends by itself when this process dies.
func startProcess(ctx context.Context, j job) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &process{job: j, cmd: exec.CommandContext(ctx, program)}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(encoded))
	p.cmd.Stderr = os.Stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(output)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker %d: %w", j.Process, err)
	}
	return p, nil
}

// start lets the worker begin.
func (p *process) start() error {
	_, err := io.WriteString(p.input, "start\n")
	return err
}

// next waits for a message.
func (p *process) next() (message, error) {
	var m message
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return m, fmt.Errorf("worker %d ended too early: %w", p.job.Process, errors.Join(err, p.wait()))
	}
	return m, json.Unmarshal(line, &m)
}

// kill ends the process as nothing else does: with SIGKILL it can't clean up.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be dead already, and that is all we want
	_ = p.wait()             // "signal: killed"
}

func (p *process) wait() error { return p.cmd.Wait() }
