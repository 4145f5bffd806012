package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// level is how much a finding matters.
type level string

const (
	fine    level = "ok"
	note    level = "note"    // to know
	warning level = "warning" // locks work, but not in every case
	problem level = "problem" // locks don't work, or can't be relied on
)

// finding is one thing that the doctor looked at.
type finding struct {
	Check  string `json:"check"`
	Node   string `json:"node,omitempty"`
	Level  level  `json:"level"`
	Text   string `json:"text"`
	Change string `json:"change,omitempty"` // what to do about it
}

// examination collects the findings about one deployment.
type examination struct {
	client   rueidis.Client
	clean    func(string) string // of what servers say
	prefix   string
	needs    []string
	findings []finding
}

func (e *examination) add(check, node string, l level, text, change string) {
	e.findings = append(e.findings, finding{check, quote.Text(node), l, quote.Line(e.clean(text)), quote.Line(change)})
}

func (a *app) doctorCommand() *cobra.Command {
	var json *bool
	var strict bool
	var needs []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether the server is fit for locks",
		Long: `doctor connects to the server as configured and checks what locks depend on: round trip, version, topology,
permissions (it names each missing one), eviction and memory limits, persistence and replicas, the servers' clocks.
It says what to change, and which settings of INFO and CONFIG the user may not read. It tests permissions by running
commands on keys of its own, and deletes those keys. --need says which features the application uses; permissions
for other features are only noted.

The exit status is 0; 1 if there is a problem (with --strict also for a warning); 69 if the server can't be reached.`,
		Example: `  redlatch doctor
  redlatch doctor --need rlock,fair --strict -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range needs {
				if !slices.Contains(useNames(), n) {
					return usageError("need: %q is not one of %s", n, strings.Join(useNames(), ", "))
				}
			}
			findings, err := a.examine(cmd.Context(), needs)
			if err != nil {
				return err
			}
			counts := map[level]int{}
			for _, f := range findings {
				counts[f.Level]++
			}
			if *json {
				err = writeJSON(a.std.out, findings, false)
			} else {
				screenOf(a.std.out).findings(a.std.out, findings, counts)
			}
			if err == nil && (counts[problem] > 0 || strict && counts[warning] > 0) {
				err = &statusError{errSaid, exitError}
			}
			return err
		},
	}
	json = asJSON(c)
	c.Flags().BoolVar(&strict, "strict", false, "fail for warnings, too")
	c.Flags().StringSliceVar(&needs, "need", []string{"rlock"}, "what the application uses: "+strings.Join(useNames(), ", "))
	_ = c.RegisterFlagCompletionFunc("need", cobra.FixedCompletions(useNames(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// findings writes them for people.
func (s screen) findings(out io.Writer, findings []finding, counts map[level]int) {
	signs := map[level]cell{fine: {"ok  ", green}, note: {"note", dim}, warning: {"WARN", yellow}, problem: {"BAD ", red}}
	for _, f := range findings {
		sign, check := signs[f.Level], strings.TrimSpace(f.Check+" "+f.Node)
		fmt.Fprintf(out, "%s  %s: %s\n", s.paint(sign.style, sign.text), s.paint(bold, check), f.Text)
		if f.Change != "" {
			fmt.Fprintf(out, "      -> %s\n", f.Change)
		}
	}
	fmt.Fprintf(out, "\n%d problem(s), %d warning(s)\n", counts[problem], counts[warning])
}

// examine makes all checks. Its error is a server that can't be reached.
func (a *app) examine(ctx context.Context, needs []string) ([]finding, error) {
	client, err := a.connect("doctor")
	if err != nil {
		return nil, err
	}
	defer client.Close()
	e := &examination{client: client, clean: a.flags.clean, prefix: a.flags.get("prefix"), needs: needs}
	nodes := client.Nodes()
	if err := e.reach(ctx, nodes, a.flags.timeout); err != nil {
		return nil, err
	}
	e.servers(ctx, nodes, client.Mode())
	e.permissions(ctx)
	e.probe(ctx, a)
	return e.findings, nil
}

// probe takes and frees a lock of each kind as an application does.
func (e *examination) probe(ctx context.Context, a *app) {
	// The counter of the fenced one shall not stay for a day, where it can't be deleted.
	client, err := a.open("doctor", func(c *redlatch.Config) { c.FenceTTL = time.Minute })
	if err != nil {
		e.add("sdk", "", problem, message(err), "")
		return
	}
	defer client.Close()
	name := "redlatch-doctor:" + uuid.NewString()
	for _, try := range []struct {
		need string
		lock redlatch.Locker
	}{
		{"rlock", client.RLock(name + ":r")},
		{"fair", client.FairLock(name + ":f")},
		{"read-write", client.ReadWriteLock(name + ":rw").WriteLock()},
		{"fenced", client.RLock(name+":t", redlatch.Fenced())},
	} {
		h, err := try.lock.TryLock(ctx, 0, 0)
		if err == nil {
			err = h.Unlock(ctx)
		}
		e.worked("lock "+try.need, try.need, "taken and freed", err)
	}
	_ = e.client.Do(ctx, e.client.B().Del().Key("redisson_lock_token:{"+e.prefix+name+":t}").Build()).Error() // the counter: at worst it ends by itself
	_, err = client.Inspect(ctx, name)
	e.worked("inspect", "operators", "works", err)
}

// worked adds what came of a try of what is needed, or is not.
func (e *examination) worked(check, need, text string, err error) {
	level := fine
	if err != nil {
		level, text = e.ifNeeded(need), message(err)
	}
	e.add(check, "", level, text, "")
}

// ifNeeded is the level of what does not work and some need.
func (e *examination) ifNeeded(need string) level {
	if slices.Contains(e.needs, need) {
		return problem
	}
	return note
}
