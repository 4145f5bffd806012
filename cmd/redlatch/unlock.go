package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/redlatch/redlatch"
	clients "github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/quote"
)

func (a *app) unlockCommand() *cobra.Command {
	var owner, reason string
	var anyOwner, yes bool
	c := &cobra.Command{
		Use:   "unlock NAME (--owner OWNER | --any-owner)",
		Short: "Take a lock away from a holder that is gone",
		Long: `unlock ends the hold of OWNER on the lock NAME, of any kind. Then it does what an unlock does: it hands a fair lock
over to the next in the queue and wakes waiters. If another owner holds the lock by then, nothing is changed and
the exit status is 4. OWNER is what show prints: the owner, its beginning, or the name of its process, also of one that
was killed. It must match a single holder. If the lock has more holders than show prints, give the whole owner.
--any-owner takes the lock from all holders, readers included. On a free lock it wakes waiters that still sleep after a
DEL by hand.

It shows what it will do and asks for confirmation. It ends the holds that it has shown, and no others: the server
compares the owners. If only others hold the lock by then, --any-owner shows them and asks again. A living holder
learns of the loss only at its next renewal, up to a third of its lease time later: make sure that it has stopped.

The eviction is noted in the history on the server (redlatch history). Without the right to do that it is done all
the same, and unlock says so.`,
		Example: `  redlatch unlock orders:42 --owner 343714c0-0d3a-4e0c-8a2f-0c8f4f1f9b11:g1-mf3k2l9x.1
  redlatch unlock orders:42 --owner checkout/7 --yes
  redlatch unlock orders:42 --any-owner --reason 'its machine is gone'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (owner == "") == !anyOwner {
				return usageError("unlock needs --owner OWNER (see redlatch show), or --any-owner")
			}
			return a.with("unlock", func(client *redlatch.Client) error {
				return a.unlock(cmd.Context(), client, args[0], owner, reason, yes)
			})
		},
	}
	c.Flags().StringVar(&owner, "owner", "", "whose hold to end: an owner, its beginning, or the name of its process")
	c.Flags().BoolVar(&anyOwner, "any-owner", false, "end the holds of all owners")
	c.Flags().StringVar(&reason, "reason", "", "why, for the history")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return c
}

// maxRounds is how often unlock looks at a lock whose holders change before they are evicted.
const maxRounds = 10

func (a *app) unlock(ctx context.Context, client *redlatch.Client, name, owner, reason string, yes bool) error {
	raw, err := given("name", name)
	if err != nil {
		return err
	}
	answers, unchanged := bufio.NewReader(a.std.in), "nothing was changed"
	var untold error // of the waiters
	for changed := 0; changed < maxRounds; {
		in, err := client.Inspect(ctx, raw)
		if err != nil {
			return err
		}
		in = shown(in)
		victims := in.Holders
		if owner != "" && !in.Held() {
			fmt.Fprintf(a.std.out, "%s is free: nothing to do\n", brief(in.Name))
			return nil
		} else if owner != "" {
			if victims, err = match(in, owner); err != nil {
				return err
			}
		}
		owners := make([]string, len(victims))
		for i, v := range victims {
			if owners[i], err = given("owner", v.Owner); err != nil {
				return err
			}
		}
		if !yes {
			if err := a.confirm(in, victims, answers); err != nil {
				return err
			}
		}
		var lost error // the record
		was, err := client.ForceUnlock(ctx, raw, redlatch.IfOwners(owners...), recorded(operator(), reason, &lost))
		if errors.Is(err, redlatch.ErrOtherOwner) && owner == "" {
			changed++
			fmt.Fprintf(a.std.err, "redlatch: %s: %s\n", unchanged, message(err))
			continue
		}
		switch {
		case err != nil && !was:
			return err
		case err != nil:
			const told = "nobody was woken: redlatch's waiters look within seconds, others at the lease's end (redlatch doctor --need evict): %s"
			untold = fmt.Errorf(told, message(err))
		}
		did := "was free; waiters were woken"
		switch {
		case was:
			did, unchanged = "was taken away from "+names(victims), "nothing more was changed; the evictions before stand"
		case len(victims) > 0:
			did = "was free by then: nothing was changed"
		case in.Kind == redlatch.KindNone && in.Processes <= 0:
			did = "was free: there is no key and no queue of this name under the prefix (redlatch ls); who might wait was woken"
		}
		fmt.Fprintln(a.std.out, brief(in.Name), did)
		if lost != nil {
			fmt.Fprintln(a.std.err, "redlatch: the eviction is not in the history:", message(lost))
		}
		if owner != "" || in.HolderCount <= len(victims) {
			return untold
		}
	}
	return &statusError{errors.New("the holders change too fast: " + unchanged), exitOtherOwner}
}

// names are the holders that are evicted, for people.
func names(victims []redlatch.Holder) string {
	if len(victims) != 1 {
		return fmt.Sprintf("the %d holders shown", len(victims))
	}
	v := victims[0]
	text := brief(v.Owner)
	if place := strings.TrimSpace(v.Client + " " + v.Addr); place != "" {
		text += " (" + place + ")"
	}
	return text
}

// confirm shows what will be done, and asks.
func (a *app) confirm(in redlatch.Inspection, victims []redlatch.Holder, answers *bufio.Reader) error {
	screenOf(a.std.out).lock(a.std.out, in)
	next := "wakes the waiting processes"
	if in.Kind == redlatch.KindFair && len(in.Queue) > 0 {
		next = "hands the lock over to " + who(in.Queue[0].Process, in.Queue[0].Owner)
	}
	if in.Held() {
		fmt.Fprintf(a.std.out, "\nThis takes the lock away from %s and %s.\nThe holder learns of it only at its next renewal.", names(victims), next)
	} else {
		fmt.Fprintf(a.std.out, "\nNobody holds the lock. This %s.", next)
	}
	if f := file(a.std.in); f != nil && !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.std.out)
		return usageError("can't ask for confirmation without a terminal: use --yes")
	}
	fmt.Fprint(a.std.out, " Type yes to do it: ")
	if answer, _ := answers.ReadString('\n'); strings.TrimSpace(answer) != "yes" {
		return errors.New("cancelled")
	}
	return nil
}

// match finds the one holder that is meant. Of a lock with more holders than an Inspection shows only a whole owner is:
// nobody can tell whether another text means one of the others as well.
func match(in redlatch.Inspection, wanted string) ([]redlatch.Holder, error) {
	raw, err := given("owner", wanted)
	if err != nil {
		return nil, err
	}
	var found []redlatch.Holder
	for _, h := range in.Holders {
		owner, err := given("owner", h.Owner)
		if owner == raw || err != nil {
			return []redlatch.Holder{h}, err
		}
		// Anybody can name a connection: of several names for one client it can't be told which one is true.
		if h.Disputed && slices.Contains(strings.Split(h.Client, ", "), raw) {
			return nil, usageError("owner: the connections of the client %s have several names (%s); give the whole owner", h.ClientID, h.Client)
		}
		if strings.HasPrefix(owner, raw) || h.Client == raw {
			found = append(found, h)
		} else if h.Client == "" && clients.Named(h.ClientID, raw) {
			h.Client = quote.Text(raw) + ", not in CLIENT LIST: it has ended, or its connections have no name"
			found = append(found, h)
		}
	}
	if hidden := in.HolderCount - len(in.Holders); hidden > 0 {
		if _, whole := redlatch.ParseOwner(raw); whole {
			return []redlatch.Holder{{Owner: exact(raw)}}, nil // the server compares
		}
		return nil, usageError("owner: %d holders of the lock are not shown; give the whole owner", hidden)
	}
	switch len(found) {
	case 0:
		text := fmt.Sprintf("the lock %s is not held by %s", brief(in.Name), quote.Text(raw))
		if len(in.Holders) > 0 {
			text += ", but by " + names(in.Holders[:1]) + others(in)
		}
		return nil, &statusError{errors.New(text), exitOtherOwner}
	case 1:
		return found, nil
	}
	return nil, usageError("owner: %s means %d holders of the lock; give the whole owner", quote.Text(raw), len(found))
}
