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

	"github.com/redlatch/redlatch/bench/internal/work"
)

// A process is this program, started again as one process of a measurement.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startProcess starts a process, which ends when its input is closed, and at the latest when ctx ends.
func startProcess(ctx context.Context, by *program, s spec) (*process, error) {
	command, err := by.command()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(append(os.Environ(), work.Variable+"=1"), by.environment()...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 64<<20)
	line, err := json.Marshal(s)
	if err == nil {
		err = p.say(string(line))
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) say(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

func (p *process) listen() (work.Message, error) {
	var m work.Message
	if !p.out.Scan() {
		return m, fmt.Errorf("a process of the measurement ended without a word: %w", errors.Join(p.out.Err(), io.EOF))
	}
	if err := json.Unmarshal(p.out.Bytes(), &m); err != nil {
		return m, fmt.Errorf("a process of the measurement said %q: %w", p.out.Text(), err)
	}
	if m.Result != nil && m.Result.Err != "" {
		return m, errors.New(m.Result.Err)
	}
	return m, nil
}

func (p *process) ready() (work.Ready, error) {
	m, err := p.listen()
	if err == nil && m.Ready == nil {
		err = errors.New("a process of the measurement spoke out of turn")
	}
	if err != nil {
		return work.Ready{}, err
	}
	return *m.Ready, nil
}

func (p *process) result() (result, error) {
	m, err := p.listen()
	if err == nil && m.Result == nil {
		err = errors.New("a process of the measurement spoke out of turn")
	}
	if err != nil {
		return result{}, err
	}
	return *m.Result, nil
}

// stop ends the process. It waits for it, and kills it when it does not end by itself in time.
func (p *process) stop() error {
	_ = p.in.Close() // what matters is that the process has gone
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return p.cmd.Wait()
}

// startAll starts a process for each spec and waits until all are ready. Processes after the first learn where the
// first one listens, if it does, so the first must be ready before.
func startAll(ctx context.Context, by *program, specs []spec) ([]*process, error) {
	var ps []*process
	fail := func(err error) ([]*process, error) {
		return nil, errors.Join(err, stopAll(ps))
	}
	add := func(s spec) error {
		p, err := startProcess(ctx, by, s)
		if err == nil {
			ps = append(ps, p)
		}
		return err
	}
	if err := add(specs[0]); err != nil {
		return fail(err)
	}
	first, err := ps[0].ready()
	if err != nil {
		return fail(err)
	}
	for _, s := range specs[1:] {
		s.Peer = first.Peer
		if err := add(s); err != nil {
			return fail(err)
		}
	}
	for _, p := range ps[1:] {
		if _, err := p.ready(); err != nil {
			return fail(err)
		}
	}
	return ps, nil
}

func stopAll(ps []*process) error {
	errs := make([]error, len(ps))
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
