package conn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
)

// Whoever lacks a right is told which, in the words of every version of the servers. Where they do not tell which
// of a script's commands it was, all are named that it may be, and no other.
func TestARightThatIsMissingIsNamed(t *testing.T) {
	line := 0
	for i, text := range strings.Split(luascript.Reenter.Body, "\n") {
		if strings.Contains(text, "'HEXISTS'") {
			line = i + 1
		}
	}
	cmd := Command{Script: luascript.Reenter, Keys: []string{"app:l", "redlatch_void:{app:l}"}, Args: []string{"f", "redlatch_wake:{app:l}:"}}
	at := fmt.Sprintf("script: %s, on @user_script:%d.", luascript.Reenter.SHA, line)
	for said, want := range map[string]string{
		"The user executing the script can't run this command or subcommand " + at: "+hexists",
		fmt.Sprintf("Error running script (call to f_%s): @user_script:%d: @user_script: %[2]d: The user executing the script can't run this command or subcommand",
			luascript.Reenter.SHA, line): "+hexists",
		"ERR The user executing the script can't run this command or subcommand":                                       "+hdel",
		"ACL failure in script: User app has no permissions to run the 'pttl' command " + at:                           "+pttl",
		"NOPERM this user has no permissions to access one of the keys used as arguments":                              "one of ~app:l ~redlatch_void:{app:l}",
		"NOPERM No permissions to access a key":                                                                        "one of ~app:l ~redlatch_void:{app:l}",
		"The user executing the script can't access at least one of the keys mentioned in the command arguments " + at: "~{app:l}:*",
		"ACL failure in script: No permissions to access a key " + at:                                                  "~{app:l}:*",
		"ERR ACL failure in script: No permissions to access a channel":                                                "&redlatch_wake:{app:l}:",
		"ERR The user executing the script can't publish to the channel mentioned in the command":                      "&redlatch_wake:{app:l}:",
		"NOPERM this user has no permissions to run the 'evalsha' command":                                             "",
		"OOM command not allowed when used memory > 'maxmemory'. " + at:                                                "",
	} {
		if want = said + map[bool]string{true: "; the user lacks " + want}[want != ""]; RefusalOf(cmd, said).Error() != want {
			t.Errorf("%s\nwant %s", RefusalOf(cmd, said), want)
		}
		if !IsPermanent(RefusalOf(cmd, said)) {
			t.Errorf("%s: not permanent", said)
		}
	}
	if err := errors.New("no answer of a server: no permission to read a key"); !errors.Is(denied(cmd, err), err) || denied(cmd, err).Error() != err.Error() {
		t.Error(denied(cmd, err))
	}
}
