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
	"fmt"
	"os"
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
