package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

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
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlatch",
		Short: "Inspect and free the locks of a Redis deployment, and run commands under a lock",
		Long: `redlatch shows distributed locks on Redis, those of the Go SDK redlatch and of
Java's Redisson: who holds one, who waits, since when. It can free a lock whose
holder is gone, and run a command under a lock.

The server's address comes from --url, --url-file or REDIS_URL, whichever is set first. Each of the global
flags can be set in the environment. A password belongs there, or into a file: other users see arguments.
  redis://user@host:6379/0            a server; rediss:// with TLS; valkey:// and valkeys:// are the same
  redis://a:7000?addr=b:7000          a cluster, by any of its nodes
  redis://a:26379?addr=b:26379&master_set=mymaster    Sentinel

Names and owners are shown, in tables, JSON, logs and on the page, as text that prints, and read in the same
way: \n, \x1b, \u202e and \xff (a byte that is not UTF-8) stand for what does not print, \\ for a backslash.
In tables and sentences long texts are cut; in JSON they are whole.

` + exitHelp,
		Example: `  export REDIS_URL=redis://localhost:6379
  redlatch ls 'orders:*'
  redlatch show orders:42`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// What fails before is the command line.
		PersistentPreRun: func(*cobra.Command, []string) { a.began = true },
	}
	root.SetIn(a.std.in)
	root.SetOut(a.std.out)
	root.SetErr(a.std.err)
	a.flags.warn = a.std.err
	a.flags.add(root.PersistentFlags())
	root.AddCommand(a.runCommand(), a.lsCommand(), a.showCommand(), a.watchCommand(), a.topCommand(),
		a.unlockCommand(), a.doctorCommand(), a.serveCommand())
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Example = `  . <(redlatch completion bash)                                  # for this shell
  redlatch completion fish >~/.config/fish/completions/redlatch.fish   # from the next one on`
	}
	return root
}

// file is the stream's file, or nil.
func file(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}
