package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/internal/settings"
)

func (a *app) historyCommand() *cobra.Command {
	var form string
	var limit int
	c := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show who evicted whom, when and why",
		Long: `history lists the evictions by redlatch unlock, by the page of redlatch serve and by programs that ask for a record,
of the lock NAME or of all under the prefix, the newest first. They are kept on the server, about the last 1,000. It
knows nothing of a DEL by hand, and is no proof: whoever may write its key may write anything there.

Columns: TIME by the server's clock; EVICTED the process, or the owner, and the number of further ones; BY who did it.`,
		Example: `  redlatch history orders:42
  redlatch history -o json | jq -r '.[] | select(.by == "ann@bastion") | .name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with("history", func(client *redlatch.Client) error {
				name, of := strings.Join(args, ""), ""
				if name != "" {
					of = " of " + quote.Name(name)
				}
				past, err := evictions(cmd.Context(), client, name, limit)
				switch {
				case err != nil:
					return err
				case form == "json":
					return writeJSON(a.std.out, past)
				case len(past) > 0:
					screenOf(a.std.out).history(a.std.out, past)
				default:
					fmt.Fprintln(a.std.err, "no evictions"+of+" are recorded under the prefix "+quote.Name(a.flags.get("prefix")))
				}
				return nil
			})
		},
	}
	output(c, &form)
	c.Flags().IntVar(&limit, "limit", 100, "how many to list at most, up to 1000")
	return c
}

// evictions are the last ones of the lock of a name that somebody gave, or of all, as text that prints.
func evictions(ctx context.Context, client *redlatch.Client, name string, most int) ([]redlatch.Eviction, error) {
	raw, err := given("name", name)
	if err != nil {
		return nil, err
	}
	past, err := client.Evictions(ctx, raw, most)
	for i := range past {
		e := &past[i]
		e.Name, e.Kind, e.By = exact(e.Name), redlatch.Kind(quote.Text(string(e.Kind))), quote.Text(e.By)
		e.Client, e.Reason = quote.Text(e.Client), quote.Text(e.Reason)
		for j := range e.Evicted {
			e.Evicted[j].Owner, e.Evicted[j].Process = exact(e.Evicted[j].Owner), quote.Text(e.Evicted[j].Process)
		}
	}
	return past, err
}

// history writes what history lists.
func (s screen) history(out io.Writer, past []redlatch.Eviction) {
	rows := make([][]cell, len(past))
	for i, e := range past {
		at, whom := "-", "-"
		if !e.At.IsZero() {
			at = e.At.Format(time.RFC3339)
		}
		if len(e.Evicted) > 0 {
			whom = cmp.Or(e.Evicted[0].Process, e.Evicted[0].Owner)
		}
		if e.Holds > 1 {
			whom += fmt.Sprintf(" +%d", e.Holds-1)
		}
		rows[i] = []cell{{at, ""}, {e.Name, cyan}, {whom, ""}, {cmp.Or(e.By, "-"), ""}, {cmp.Or(e.Reason, "-"), ""}}
	}
	lines, _ := s.lines("TIME NAME* EVICTED* BY* REASON*", rows)
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}

// recorded has an eviction noted in the history; lost tells why it is not, if it ended a hold.
func recorded(by, reason string, lost *error) redlatch.ForceOption {
	return settings.Func[settings.Force](func(s *settings.Force) {
		s.Recorded, s.By, s.Reason, s.Told = true, by, reason, func(err error) { *lost = err }
	})
}

// operator is who runs this program.
func operator() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	host, _ := os.Hostname()
	return cmp.Or(name, "unknown") + "@" + host
}
