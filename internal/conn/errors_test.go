package conn

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestClasses: what was not sent needs no undoing, and what may have run does.
func TestClasses(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want Class
	}{
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, Unsent},
		{fmt.Errorf("a node: %w", rueidis.ErrNoSlot), Unsent},
		{rueidis.ErrNoAddr, Unsent},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, Ambiguous},
		{rueidis.ErrClosing, Ambiguous},
		{ErrShortReply, Ambiguous},
		{Refusal("TRYAGAIN Multiple keys request during rehashing of slot"), Refused},
		{Refusal("OOM command not allowed when used memory > 'maxmemory'."), Permanent},
		// Before Redis 7, from Redis 7 on, and as a script caught and returned it. The script may have
		// deleted the key itself: it has done what it was to do.
		{Refusal("Error running script (call to f_8f): @user_script:6: @user_script: 6: " +
			"Lua script attempted to access a non local key in a cluster node"), Ambiguous},
		{Refusal("Script attempted to access a non local key in a cluster node script: 8f, on @user_script:6."), Ambiguous},
		{Refusal("ERR Script attempted to access a non local key in a cluster node"), Ambiguous},
	} {
		testbed.Equal(t, Classify(tc.err), tc.want, tc.err)
	}
}

// TestCodesOfEveryVersion: a code is found where each version puts it, and nowhere
// else. The texts are what servers said; the client library leaves out "ERR ".
func TestCodesOfEveryVersion(t *testing.T) {
	for _, tc := range []struct {
		msg, code string
		want      bool
	}{
		{"READONLY You can't write against a read only replica.", "READONLY", true},
		{"READONLY You can't write against a read only replica. script: 8f, on @user_script:22.", "READONLY", true},
		{"Error running script (call to f_8f): @user_script:22: @user_script: 22: -READONLY You can't write", "READONLY", true},
		{"@user_script: 1: -NOREPLICAS Not enough good replicas to write.", "NOREPLICAS", true},
		{"Error running script (call to f_8f): @user_script:6: WRONGTYPE Operation against a key", "WRONGTYPE", true},
		{"max number of clients reached", "max number of clients reached", true},
		{"max number of clients + cluster connections reached", "max number of clients + cluster connections reached", true},
		{"READONLYX", "READONLY", false},
		{"WRONGTYPE of a key named : -READONLY x", "READONLY", false},
		{"Error running script (call to f_8f): @user_script:6: WRONGTYPE Operation", "READONLY", false},
	} {
		testbed.Equal(t, hasCode(tc.msg, tc.code), tc.want, tc.code, "in", tc.msg)
	}
}

// TestWhatNeverRan: what was refused as a whole has left nothing; a script that was refused half-way may have. The texts
// are what Redis 6.0, 7.0 and 7.2 said.
func TestWhatNeverRan(t *testing.T) {
	for msg, want := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand":                true,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                   true,
		"NOPERM User app has no permissions to run the 'evalsha' command":                                   true,
		"NOPERM No permissions to access a key":                                                             true,
		"unknown command 'EVAL'":                                                                            true,
		"Unknown Redis command called from Lua script":                                                      false,
		"NOPERM ACL failure in script: User app has no permissions to run the 'hset' command script: 8f, …": false,
		"The user executing the script can't run this command or subcommand script: 8f, on @user_script:9.": false,
		"Error running script (call to f_8f): @user_script:6: @user_script: 6: -NOPERM this user":           false,
		"OOM command not allowed when used memory > 'maxmemory'.":                                           false,
	} {
		testbed.Equal(t, NeverRan(Refusal(msg)), want, msg)
	}
}

// TestNoErrorTakesNoMemory: each command that worked is asked what its error was.
func TestNoErrorTakesNoMemory(t *testing.T) {
	known := &secrets{words: []string{"word"}}
	n := testing.AllocsPerRun(100, func() {
		if IsTryAgain(nil) || isNoScript(nil) || isReplica(nil) || known.clean(nil) != nil {
			t.Fatal("no error is taken for one")
		}
	})
	testbed.Equal(t, n, 0, "allocations")
}
