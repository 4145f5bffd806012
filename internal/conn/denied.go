package conn

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/quote"
)

// deniedError is a server's answer that the user lacks a right, with what that may be: servers before Redis 7.2
// name no command that a script called, and none names a key or a channel.
type deniedError struct {
	error
	lacks string
}

func (e deniedError) Error() string { return e.error.Error() + "; " + e.lacks }
func (e deniedError) Unwrap() error { return e.error }

var (
	scriptLine = regexp.MustCompile(`@user_script: ?(\d+)`)
	namedRight = regexp.MustCompile(`has no permissions to run the '([a-z|]+)'`)
	luaCall    = regexp.MustCompile(`\b(p?)call\((?:'([A-Z]+)'|(\.\.\.|ARGV|publish))`)
	luaWord    = regexp.MustCompile(`'([A-Z]+)'`)
)

// denied adds to an error that a right is missing which rights of the script's it may be.
func denied(cmd Command, err error) error {
	said, ok := answerOf(err)
	if !ok {
		return err
	}
	var rights []string
	switch {
	case strings.Contains(said, "can't run this command") || strings.Contains(said, "ACL failure in script: User"):
		rights = commandsOf(cmd, said)
	case strings.Contains(said, "can't access at least one of the keys") || strings.Contains(said, "ACL failure in script: No permissions to access a key"):
		// the server looks at those that are declared before it runs the script
		rights = append(rights, "~"+quote.Text(luascript.RWTimeoutPrefix(cmd.Keys[0]))+":*")
	case hasCode(said, "NOPERM") && strings.Contains(said, "key"):
		for _, key := range cmd.Keys {
			rights = append(rights, "~"+quote.Text(key))
		}
	case strings.Contains(said, "can't publish to the channel") || strings.Contains(said, "No permissions to access a channel"):
		for _, arg := range cmd.Args {
			if strings.HasPrefix(arg, "redisson_") || strings.HasPrefix(arg, "redlatch_") {
				rights = append(rights, "&"+quote.Text(arg))
			}
		}
	}
	if len(rights) == 0 {
		return err
	}
	return deniedError{err, lacks(rights)}
}

// RefusalOf is the error of a server's message that came as part of the reply to a command.
func RefusalOf(cmd Command, text string) error { return denied(cmd, Refusal(text)) }

// lacks says that a user lacks one of these rights.
func lacks(rights []string) string {
	slices.Sort(rights)
	if rights = slices.Compact(rights); len(rights) == 1 {
		return "the user lacks " + rights[0]
	}
	return "the user lacks one of " + strings.Join(rights, " ")
}

// commandsOf are the commands of a script that a server may mean: the one that it names, those in the line that it
// names, or all whose errors the script catches, which have no line.
func commandsOf(cmd Command, said string) []string {
	if named := namedRight.FindStringSubmatch(said); named != nil {
		return []string{"+" + named[1]}
	}
	s, publish := cmd.Script, "+publish"
	if slices.Contains(cmd.Args, "SPUBLISH") {
		publish = "+spublish"
	}
	text, caught := s.Body, "p"
	if at := scriptLine.FindStringSubmatch(said); at != nil && strings.Contains(said, s.SHA) {
		n, _ := strconv.Atoi(at[1])
		if lines := strings.Split(s.Body, "\n"); 0 < n && n <= len(lines) {
			text, caught = lines[n-1], ""
		}
	}
	var rights []string
	for _, call := range luaCall.FindAllStringSubmatch(text, -1) {
		switch {
		case call[1] != caught:
		case call[3] == "...": // of a function that is given the command
			for _, word := range luaWord.FindAllStringSubmatch(s.Body, -1) {
				rights = append(rights, "+"+strings.ToLower(word[1]))
			}
		case call[3] != "":
			rights = append(rights, publish)
		default:
			rights = append(rights, "+"+strings.ToLower(call[2]))
		}
	}
	known := acl.Rules(acl.Needs()...)
	return slices.DeleteFunc(rights, func(right string) bool { return !slices.Contains(known, right) })
}
