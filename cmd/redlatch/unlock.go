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
	"github.com/redlatch/redlatch/internal/quote"
)

func (a *app) unlockCommand() *cobra.Command {
	var owner string
	var anyOwner, yes bool
	c := &cobra.Command{
		Use:   "unlock NAME (--owner OWNER | --any-owner)",
		Short: "Take a lock away from a holder that is gone",
		Long: `unlock ends the hold of OWNER on the lock NAME, of any kind. Then it does what an unlock does: it hands a fair lock
over to the next in the queue and wakes waiters. If another owner holds the lock by then, nothing is changed and
the exit status is 4. OWNER is what show prints: the whole owner, its beginning, or the name of its process, as long
as that matches a single holder; of a lock with more holders than show prints, the whole owner. --any-owner takes
the lock from all holders, readers included. On a free lock it wakes waiters that still sleep after a DEL by hand.

It shows what it will do and asks for confirmation, unless --yes is given. A living holder learns of the loss only
at its next renewal, up to a third of its lease time later: make sure that it has stopped working.`,
		Example: `  redlatch unlock orders:42 --owner 343714c0-0d3a-4e0c-8a2f-0c8f4f1f9b11:g1-mf3k2l9x.1
  redlatch unlock orders:42 --owner checkout/7 --yes
  redlatch unlock orders:42 --any-owner`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (owner == "") == !anyOwner {
				return usageError("unlock needs --owner OWNER (see redlatch show), or --any-owner")
			}
			return a.with("unlock", func(client *redlatch.Client) error { return a.unlock(cmd.Context(), client, args[0], owner, yes) })
		},
	}
	c.Flags().StringVar(&owner, "owner", "", "whose hold to end: an owner, its beginning, or the name of its process")
	c.Flags().BoolVar(&anyOwner, "any-owner", false, "end the holds of all owners")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return c
}

func (a *app) unlock(ctx context.Context, client *redlatch.Client, name, owner string, yes bool) error {
	raw, err := given("name", name)
	if err != nil {
		return err
	}
	in, err := client.Inspect(ctx, raw)
	if err != nil {
		return err
	}
	in = shown(in)
	if !in.Held() && owner != "" {
		fmt.Fprintf(a.std.out, "%s is free: nothing to do\n", brief(in.Name))
		return nil
	}
	var opts []redlatch.ForceOption
	evicts := fmt.Sprintf("all its holders (now %d)", in.HolderCount)
	if owner != "" {
		full, err := match(in, owner)
		if err != nil {
			return err
		}
		opts = append(opts, redlatch.IfOwner(full))
		evicts = brief(exact(full))
	}
	if !yes {
		if err := a.confirm(in, evicts); err != nil {
			return err
		}
	}
	was, err := client.ForceUnlock(ctx, raw, opts...)
	if err != nil {
		return err
	}
	did := "was free; waiters were woken"
	if was {
		did = "was taken away from " + evicts
	}
	fmt.Fprintln(a.std.out, brief(in.Name), did)
	return nil
}

// confirm shows what will be done, and asks.
func (a *app) confirm(in redlatch.Inspection, evicts string) error {
	screenOf(a.std.out).lock(a.std.out, in)
	next := "wakes the waiting processes"
	if in.Kind == redlatch.KindFair && len(in.Queue) > 0 {
		next = "hands the lock over to " + who(in.Queue[0].Process, in.Queue[0].Owner)
	}
	if in.Held() {
		fmt.Fprintf(a.std.out, "\nThis takes the lock away from %s and %s.\nThe holder learns of it only at its next renewal.", evicts, next)
	} else {
		fmt.Fprintf(a.std.out, "\nNobody holds the lock. This %s.", next)
	}
	fmt.Fprint(a.std.out, " Type yes to do it: ")
	f := file(a.std.in)
	if f != nil && !term.IsTerminal(int(f.Fd())) {
		fmt.Fprintln(a.std.out)
		return usageError("can't ask for confirmation without a terminal: use --yes")
	}
	answer, _ := bufio.NewReader(a.std.in).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &statusError{errors.New("cancelled: nothing was changed"), exitError}
	}
	return nil
}

// match finds the one holder that is meant, and returns the owner as Redis has it. Of a lock with more holders than an
// Inspection shows only a whole owner is: nobody can tell whether another text means one of the others as well.
func match(in redlatch.Inspection, wanted string) (string, error) {
	raw, err := given("owner", wanted)
	if err != nil {
		return "", err
	}
	var found []string
	for _, h := range in.Holders {
		owner, err := given("owner", h.Owner)
		if owner == raw || err != nil {
			return owner, err
		}
		// Anybody can name a connection: of several names for one client it can't be told which one is true.
		if h.Disputed && slices.Contains(strings.Split(h.Client, ", "), raw) {
			return "", usageError("owner: the connections of the client %s have several names (%s); give the whole owner", h.ClientID, h.Client)
		}
		if strings.HasPrefix(owner, raw) || h.Client == raw {
			found = append(found, owner)
		}
	}
	if hidden := in.HolderCount - len(in.Holders); hidden > 0 {
		if _, whole := redlatch.ParseOwner(raw); whole {
			return raw, nil // the server compares
		}
		return "", usageError("owner: %d holders of the lock are not shown; give the whole owner", hidden)
	}
	switch len(found) {
	case 0:
		text := fmt.Sprintf("the lock %s is not held by %s", brief(in.Name), quote.Text(raw))
		if len(in.Holders) > 0 {
			text += ", but by " + brief(in.Holders[0].Owner)
		}
		return "", &statusError{errors.New(text), exitOtherOwner}
	case 1:
		return found[0], nil
	}
	return "", usageError("owner: %s means %d holders of the lock; give the whole owner", quote.Text(raw), len(found))
}
