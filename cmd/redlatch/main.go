// Command redlatch looks at the locks of a Redis deployment, frees them, and runs
// commands under them.
//
//	redlatch run backup --wait 5s -- /usr/local/bin/backup
//	redlatch ls 'orders:*'
//	redlatch show orders:42
//	redlatch unlock orders:42 --owner checkout/7
//
// redlatch help lists the commands and the exit status of each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	scan "github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/quote"
)

func main() {
	if status, ok := helper(os.Args); ok {
		os.Exit(status)
	}
	os.Exit(execute(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// execute runs the command line and returns the exit status.
func execute(ctx context.Context, args []string, std streams) int {
	a := &app{std: std}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(std.err, "redlatch:", a.flags.clean(message(err)))
	}
	if err != nil && !a.began {
		return exitUsage
	}
	return status(err)
}

// streams are the program's input and outputs.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// app is what the commands share.
type app struct {
	std   streams
	flags connection
	began bool // the command line is right
	full  bool // nothing bounds scans
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "Inspect and free the locks of a Redis deployment, and run commands under a lock",
		Long: `redlatch shows distributed locks on Redis, those of the Go SDK redlatch and of
Java's Redisson: who holds one, who waits, since when. It can free a lock whose
holder is gone, and run a command under a lock.

The server's address comes from --url, else --url-file, else REDIS_URL. Each of the global
flags can be set in the environment. A password belongs there, or into a file: other users see arguments.
  redis://user@host:6379/0            a server; rediss:// with TLS; valkey:// and valkeys:// are the same
  redis://a:7000?addr=b:7000          a cluster, by any of its nodes
  redis://a:26379?addr=b:26379&master_set=mymaster    Sentinel

Names and owners are shown, and read, as text that prints: \n, \x1b, \u202e and \xff (a byte that is not UTF-8)
stand for what does not print, \\ for a backslash. In tables and sentences long texts are cut.

` + exitHelp,
		Example: `  export REDIS_URL=redis://localhost:6379
  redlatch ls 'orders:*'
  redlatch show orders:42`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// What fails before is the command line.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			a.began = cmd.ValidateFlagGroups() == nil
			if !a.full {
				pace := newPace()
				pace.Slow = func() { fmt.Fprintln(a.std.err, "redlatch: this takes", budget+"; --full-speed lifts that") }
				cmd.SetContext(scan.WithPace(cmd.Context(), pace))
			}
		},
	}
	root.SetOut(a.std.out)
	root.SetErr(a.std.err)
	a.flags.warn = a.std.err
	a.flags.add(root.PersistentFlags())
	root.MarkFlagsMutuallyExclusive("url", "url-file")
	root.AddCommand(a.runCommand(), a.lsCommand(), a.showCommand(), a.watchCommand(), a.topCommand(),
		a.unlockCommand(), a.historyCommand(), a.doctorCommand(), a.serveCommand())
	for _, c := range root.Commands() {
		if strings.Contains(c.Use, " NAME") {
			c.ValidArgsFunction = a.complete
		}
	}
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Example = `  . <(redlatch completion bash)                                  # for this shell
  redlatch completion fish >~/.config/fish/completions/redlatch.fish   # from the next one on`
	}
	return root
}

// version is that of the program, and of Go.
func version() string {
	text := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		text = info.Main.Version
	}
	return text + ", " + runtime.Version()
}

// file is the stream's file, or nil.
func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

// The exit statuses; exitHelp tells users.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitOtherOwner  = 4
	exitUnavailable = 69
	exitLost        = 70
	exitBusy        = 75
	exitCantRun     = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

const exitHelp = `Exit status:
    0  done
    1  failed; doctor: something must be changed
    2  the command line is wrong
    4  unlock: another owner holds the lock; nothing was changed
   69  the server can't be reached, or does not answer
   70  run: the lock was lost while the command ran, or may have been
   75  run: another owner holds the lock (--conflict-exit-code changes this)
  126  run: the command can't be run
  127  run: the command was not found
128+n  run: the command, or the wait for the lock, was ended by signal n
  else run: the exit status of the command`

// statusError ends the program with a status of its own.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// errSaid is a failure of which everything is said.
var errSaid = errors.New("")

// usageError is a command line that makes no sense.
func usageError(format string, args ...any) error {
	return &statusError{fmt.Errorf(format, args...), exitUsage}
}

// status is the exit status that an error means.
func status(err error) int {
	var st *statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &st):
		return st.status
	case errors.Is(err, redlatch.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, redlatch.ErrOtherOwner):
		return exitOtherOwner
	case errors.Is(err, redlatch.ErrInvalidOption):
		return exitUsage
	}
	return exitError
}

// message is an error without the SDK's name: the program's is there already.
// It is fit to be shown, whatever a server has said.
func message(err error) string { return quote.Line(strings.TrimPrefix(err.Error(), "redlatch: ")) }
