package conn

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// Class says what an error of Run means for the caller.
type Class int

const (
	// Permanent means: the server refused, and will again.
	Permanent Class = iota
	// Refused means: the server did not run the script now; it may later.
	Refused
	// Unsent means: the command never reached a server.
	Unsent
	// Ambiguous means: the script may have run.
	Ambiguous
)

// Transient reports whether another try makes sense.
func (c Class) Transient() bool { return c != Permanent }

// passing are the error codes of states that end by themselves.
var passing = []string{
	"LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "BUSY", "NOREPLICAS",
	"MOVED", "ASK", "MISCONF", "UNBLOCKED", "NOGOODSLAVE", "max number of clients reached",
	"max number of clients + cluster connections reached",
}

// notHere is the error of a script that uses a key which a cluster can't find while it moves the
// slot: the key has moved, or the script itself has deleted it. The words in front depend on the
// version.
const notHere = "attempted to access a non local key in a cluster node"

// Classify tells what err means. A script that fails half way has done its first
// half; ours make the first write the deciding one and undo it themselves when
// what belongs to it is refused, so an answered error means: not done. The exception is
// [notHere], which may come at any command: a release has freed the lock then, for example.
func Classify(err error) Class {
	if msg, ok := answerOf(err); ok {
		if strings.Contains(msg, notHere) {
			return Ambiguous
		}
		if hasAny(msg, passing...) {
			return Refused
		}
		return Permanent
	}
	if _, late := errors.AsType[*lock.ConnectError](err); late { // nothing was sent
		return Permanent
	}
	if dialFailed(err) || errors.Is(err, rueidis.ErrNoAddr) || errors.Is(err, rueidis.ErrNoSlot) {
		return Unsent
	}
	return Ambiguous
}

// hasCode finds an error code at the start of a server's message, or, as servers
// before Redis 7 put it, inside that of a script error. The client library leaves
// out a leading "ERR ".
func hasCode(msg, code string) bool {
	if rest, ok := strings.CutPrefix(msg, code); ok && (rest == "" || rest[0] == ' ') {
		return true
	}
	if !strings.HasPrefix(msg, "Error running script") && !strings.HasPrefix(msg, "@user_script") {
		return false
	}
	// "Error running script (call to f_…): @user_script:7: @user_script: 7: -OOM command not …",
	// without the hyphen where the command itself failed; and, of what a script caught and
	// returned, "@user_script: 7: -OOM command not …".
	return strings.Contains(msg, ": -"+code+" ") || strings.Contains(msg, ": "+code+" ")
}

func dialFailed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// IsPermanent is for callers that only want to know whether to go on.
func IsPermanent(err error) bool { return err != nil && Classify(err) == Permanent }

// IsTryAgain reports whether a cluster refused a command of several keys because it
// is moving their slot and only some of them have moved.
func IsTryAgain(err error) bool { return answers(err, "TRYAGAIN") }

// IsOfSlot reports whether a node of a cluster has said that the slot, or a key of it, is elsewhere or on its way.
func IsOfSlot(err error) bool { return answers(err, "TRYAGAIN", "MOVED", "ASK") }

// NeverRan reports whether a server refused a script as a whole: it runs none, or the user may not, or not on these keys.
// What the script's own commands lack comes in the words of a script's error.
func NeverRan(err error) bool {
	msg, ok := answerOf(err)
	return ok && !strings.Contains(msg, "script") && (strings.HasPrefix(msg, "NOPERM ") || strings.HasPrefix(msg, "unknown command "))
}

// isRedirection reports whether a node of a cluster has said that a slot, or a key of it, is elsewhere.
func isRedirection(err error) bool { return answers(err, "MOVED", "ASK") }

// answers reports whether err is a server's message with one of these codes.
func answers(err error, codes ...string) bool {
	msg, ok := answerOf(err)
	return ok && hasAny(msg, codes...)
}

func hasAny(msg string, codes ...string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return hasCode(msg, code) })
}

// answerOf is the server's message, if err is one.
func answerOf(err error) (string, bool) {
	if err == nil { // of every command that worked: what follows takes memory
		return "", false
	}
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return re.Error(), true
	}
	if text, ok := errors.AsType[refusal](err); ok {
		return string(text), true
	}
	return "", false
}

// ErrShortReply is a script's reply with too little in it.
var ErrShortReply = errors.New("the script's reply is too short")

// Refusal is the error of a server's message that came as part of a reply.
func Refusal(text string) error { return refusal(text) }

type refusal string

func (r refusal) Error() string { return string(r) }

// IsNil tells an answer of the server from other errors, as the client library's
// type does.
func (refusal) IsNil() bool { return false }
