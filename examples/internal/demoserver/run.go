package demoserver

import (
	"context"
	"errors"
	"fmt"
)

// Run runs an example on the server that [Auto] finds, and says which it is. It stops the server afterwards.
func Run(ctx context.Context, name string, example func(context.Context, *Server) error) (err error) {
	server, err := Start(ctx, name, Auto)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Println("Redis:", server.About)
	return example(ctx, server)
}
