package redlatch_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch"
)

// What a program does about an error of connecting: wait and try again only when the
// server can't be reached, and tell a person what to change otherwise.
func ExampleConnectError() {
	url := strings.Replace(redisURL, "redis://", "redis://nobody:secret@", 1)
	client, err := redlatch.Open(url)
	var refused *redlatch.ConnectError
	switch {
	case err == nil:
		defer client.Close()
	case errors.As(err, &refused):
		fmt.Println(refused.Reason)
		fmt.Println(refused.Advice)
	case errors.Is(err, redlatch.ErrUnavailable):
		fmt.Println("later")
	}
	// Output:
	// login
	// user name or password is wrong, or the user is disabled: change Username and Password
}
