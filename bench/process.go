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

// A process is this program, or the contender's, started as one process of a measurement.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startProcess starts a process, which ends when its input is closed, and at the latest when ctx ends.
func startProcess(ctx context.Context, program []string, s spec) (*process, error) {
	if program == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = []string{self}
	}
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = append(os.Environ(), work.Variable+"=1")
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

// stop ends the process. It waits for it, and kills it when it does not end by itself in time.
func (p *process) stop() error {
	_ = p.in.Close() // what matters is that the process has gone
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return p.cmd.Wait()
}

// startAll starts a process for each spec and waits until all are ready.
func startAll(ctx context.Context, program []string, specs []spec) ([]*process, error) {
	var ps []*process
	for _, s := range specs {
		p, err := startProcess(ctx, program, s)
		if err != nil {
			return nil, errors.Join(err, stopAll(ps))
		}
		ps = append(ps, p)
	}
	for _, p := range ps {
		m, err := p.listen()
		if err == nil && !m.Ready {
			err = errors.New("a process of the measurement spoke out of turn")
		}
		if err != nil {
			_ = stopAll(ps) // one that failed has said why
			return nil, err
		}
	}
	return ps, nil
}

// tellAll says the same to all processes.
func tellAll(ps []*process, line string) error {
	for _, p := range ps {
		if err := p.say(line); err != nil {
			return err
		}
	}
	return nil
}

func resultsOf(ps []*process) ([]result, error) {
	results := make([]result, len(ps))
	for i, p := range ps {
		m, err := p.listen()
		if err == nil && m.Result == nil {
			err = errors.New("a process of the measurement spoke out of turn")
		}
		if err != nil {
			return nil, err
		}
		results[i] = *m.Result
	}
	return results, nil
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
