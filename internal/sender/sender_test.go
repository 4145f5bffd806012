package sender

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// held is a node that answers nothing until it is let go.
type held struct {
	open chan struct{}
	ran  chan string // the first keys of the commands that arrive

	arrives func(key string) // if not nil
}

func (h *held) Topology() conn.Topology { return conn.Topology{} }

func (h *held) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	h.ran <- cmd.Keys[0]
	if h.arrives != nil {
		h.arrives(cmd.Keys[0])
	}
	if cmd.Keys[0] != "renewed" {
		<-h.open
	}
	return conn.Reply{Code: 1}, nil
}

func (h *held) RunMulti(ctx context.Context, cmds []conn.Command, out []conn.Result) []conn.Result {
	return inTurn(ctx, h.Run, cmds, out)
}

// inTurn runs commands one after the other.
func inTurn(ctx context.Context, run func(context.Context, conn.Command) (conn.Reply, error), cmds []conn.Command, out []conn.Result) []conn.Result {
	out = out[:0]
	for _, cmd := range cmds {
		r, err := run(ctx, cmd)
		out = append(out, conn.Result{Reply: r, Err: err})
	}
	return out
}

func withHeld(t *testing.T, alone bool, test func(s *Sender, node *held)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		node := &held{open: make(chan struct{}), ran: make(chan string, 10000)}
		s := New(node, Config{Slow: time.Second, Alone: alone})
		test(s, node)
		close(node.open)
		synctest.Wait()
		s.Stop()
		s.Wait()
	})
}

func command(key string) conn.Command {
	return conn.Command{Script: luascript.Release, Keys: []string{key}}
}

// start hands in a number of commands.
func (s *Sender) start(n int, class Class, key string) {
	for range n {
		s.Start(&Call{Cmd: command(key), Class: class, Ctx: context.Background(), Then: func(*Call) {}})
	}
	synctest.Wait()
}

// However many releases and attempts wait for an answer, or for their turn to be sent, a
// renewal is sent at once.
func TestRenewalsWaitForNoCaller(t *testing.T) {
	for _, alone := range []bool{false, true} {
		withHeld(t, alone, func(s *Sender, node *held) {
			s.start(2000, Keep, "stuck")
			s.start(2000, Ask, "stuck")
			for len(node.ran) > 0 {
				<-node.ran
			}
			renewed := false
			s.Start(&Call{Cmd: command("renewed"), Class: Renew, Ctx: context.Background(), Then: func(*Call) { renewed = true }})
			synctest.Wait()
			if !renewed {
				t.Errorf("alone %v: a renewal stands behind callers' commands", alone)
			}
		})
	}
}

// Where each command travels alone, as many renewals are under way as a lane may have: on a cluster,
// each slot is a command of its own.
func TestRenewalsThatTravelAloneWaitForNoOther(t *testing.T) {
	for _, alone := range []bool{false, true} {
		withHeld(t, alone, func(s *Sender, node *held) {
			s.start(2*flights[Renew], Renew, "stuck")
			want := carriers[Renew]
			if alone {
				want = flights[Renew]
			}
			testbed.Equal(t, len(node.ran), want, "alone", alone, "renewals that are under way")
		})
	}
}

// Releases are sent before attempts to acquire that came earlier: what can't be sent yet
// holds nothing.
func TestReleasesComeFirst(t *testing.T) {
	for _, alone := range []bool{false, true} {
		withHeld(t, alone, func(s *Sender, node *held) {
			// All carriers are busy. There are fewer releases than may be under way at a time, so
			// that none waits for anything but a carrier.
			blocks := carriers[Ask]
			if alone {
				blocks = aloneCarriers[Ask]
			}
			s.start(blocks, Ask, "blocks")
			s.start(blocks, Keep, "blocks")
			s.start(300, Ask, "acquire")
			s.start(300, Keep, "release")
			early := 0
			node.arrives = func(key string) {
				s.one.mu.Lock()
				defer s.one.mu.Unlock()
				if key == "acquire" && s.one.queue[Keep].First() != nil {
					early++
				}
			}
			for range 2*blocks + 600 {
				node.open <- struct{}{}
			}
			synctest.Wait()
			if early > 0 {
				t.Errorf("alone %v: %d attempts were sent while releases waited to be", alone, early)
			}
		})
	}
}

// A node that is silent for longer than the replicas may take is in trouble, also when
// nothing but commands that wait for replicas is under way.
func TestSilenceBehindReplicas(t *testing.T) {
	withHeld(t, false, func(s *Sender, _ *held) {
		cmd := command("stuck")
		cmd.Acks, cmd.AckTimeout = 1, 2*time.Second
		s.Start(&Call{Cmd: cmd, Class: Acked, Ctx: context.Background(), Then: func(*Call) {}})
		synctest.Wait()
		time.Sleep(2900 * time.Millisecond)
		if err := s.Trouble("stuck"); err != nil {
			t.Error("in trouble while the replicas may be slow:", err)
		}
		time.Sleep(200 * time.Millisecond)
		var silent *SilentError
		if err := s.Trouble("stuck"); !errors.As(err, &silent) {
			t.Errorf("%v, want silence", err)
		}
	})
}

// How the last command of a node ended says nothing once another node has its slots; of one that is silent it is known.
func TestANodeWithoutSlotsIsInNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &scripted{answers: map[string]chan error{"x": make(chan error)}, place: "old"}
		s := New(node, Config{Slow: time.Second})
		for _, place := range []string{"old", "new"} {
			node.place = place
			s.start(1, Ask, "x")
		}
		troubled := func(want ...string) {
			t.Helper()
			var got []string
			for _, n := range s.Troubled() {
				got = append(got, n.Node)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("in trouble: %q, want %q", got, want)
			}
		}
		time.Sleep(2 * time.Second)
		s.Masters([]string{"new"})
		troubled("new", "old")
		for range 2 {
			node.answers["x"] <- io.EOF
		}
		synctest.Wait()
		troubled("new", "old")
		s.Masters([]string{"new"})
		troubled("new")
		s.Stop()
		s.Wait()
	})
}

// A node that does not serve a slot is in no trouble for the others of it, and for that slot until it serves it again.
func TestASlotOfANodeInNoTrouble(t *testing.T) {
	for _, refusal := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 7365 127.0.0.1:1", "ASK 7365 127.0.0.1:1"} {
		synctest.Test(t, func(t *testing.T) {
			node := &scripted{answers: map[string]chan error{"x": make(chan error), "y": make(chan error)}, place: "one"}
			s := New(node, Config{Slow: time.Second})
			for _, step := range []struct {
				key  string
				err  error
				x, y bool // in trouble then
			}{
				{"x", conn.Refusal(refusal), true, false},
				{"y", nil, true, false},
				{"y", io.EOF, true, true},
				{"x", conn.Refusal(refusal), true, false}, // an answer
				{"x", nil, false, false},
			} {
				s.start(1, Ask, step.key)
				node.answers[step.key] <- step.err
				synctest.Wait()
				testbed.Equal(t, [2]bool{s.Trouble("x") != nil, s.Trouble("y") != nil}, [2]bool{step.x, step.y}, step.key, step.err)
			}
			s.Stop()
			s.Wait()
		})
	}
}

// scripted is a node whose answers the test gives, one by one.
type scripted struct {
	answers map[string]chan error // by key
	place   string                // of all slots, in a cluster; "": it is none
}

func (n *scripted) Topology() conn.Topology {
	return conn.Topology{Cluster: n.place != "", Node: func(uint16) string { return n.place }}
}

func (n *scripted) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	return conn.Reply{Code: 1}, <-n.answers[cmd.Keys[0]]
}

func (n *scripted) RunMulti(ctx context.Context, cmds []conn.Command, out []conn.Result) []conn.Result {
	return inTurn(ctx, n.Run, cmds, out)
}

// What says that a node has failed is a break when the node has answered since it last failed, or
// may have done so: else it would keep all other nodes' locks from being passed on.
func TestAFailureThatSaysNothingNewIsNoBreak(t *testing.T) {
	refused := conn.Refusal("NOREPLICAS Not enough good replicas to write.")
	unsent := error(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	wrong := conn.Refusal("WRONGTYPE Operation against a key")
	synctest.Test(t, func(t *testing.T) {
		node := &scripted{answers: map[string]chan error{"a": make(chan error), "b": make(chan error)}}
		s := New(node, Config{Slow: time.Second})
		send := func(key string) {
			s.start(1, Keep, key)
			time.Sleep(time.Millisecond)
		}
		breaks := func(key string, answer error) bool {
			before := s.Broke()
			node.answers[key] <- answer
			synctest.Wait()
			time.Sleep(time.Millisecond)
			return s.Broke() != before
		}
		for i, step := range []struct {
			answer error
			breaks bool
		}{
			{nil, false},
			{refused, true}, {refused, false}, {refused, false}, // of the same node: nothing new
			{unsent, false}, {refused, false},
			{nil, false}, {refused, true}, // it had answered
			{wrong, false}, {unsent, true}, {refused, false}, // that was an answer, too
			{io.EOF, true}, {io.EOF, true}, // it may have been an answer
			{refused, false}, {nil, false},
		} {
			send("a")
			testbed.Equal(t, breaks("a", step.answer), step.breaks, "whether it is a break, answer", i, step.answer)
		}
		// An answer that is taken late: what the node has refused since is news for it.
		send("a")
		if !breaks("a", refused) {
			t.Error("no break after an answer")
		}
		send("a")
		send("b")
		if breaks("a", refused) {
			t.Error("a break, though nothing was answered")
		}
		if !breaks("b", nil) {
			t.Error("no break, though the node has failed after its answer")
		}
		s.Stop()
		s.Wait()
	})
}

// A call that was left has no signal in its channel, which the next one may have: whether it was answered in the moment
// in which it was left, interrupted or withdrawn.
func TestWhoLeavesTakesTheSignal(t *testing.T) {
	for left, meanwhile := range map[Left]func(s *Sender, node *held){
		Answered:  func(_ *Sender, node *held) { node.open <- struct{}{} },
		Away:      func(s *Sender, _ *held) { s.Interrupt() },
		Withdrawn: func(s *Sender, _ *held) { s.Interrupt() },
	} {
		withHeld(t, false, func(s *Sender, node *held) {
			if left == Withdrawn {
				s.start(flights[Ask], Ask, "stuck")
			}
			call := &Call{Cmd: command("left"), Class: Ask, Ctx: context.Background()}
			s.Start(call)
			synctest.Wait()
			meanwhile(s, node)
			synctest.Wait()
			testbed.Equal(t, len(call.Signal), 1, "signals before it is left,", left)
			testbed.Equal(t, call.Leave(nil), left, "what Leave found")
			testbed.Equal(t, len(call.Signal), 0, "signals that the next call would take for its own,", left)
		})
	}
}
