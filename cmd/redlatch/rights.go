package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/acl"
)

// needs are the uses that doctor knows. What the sentinels' user lacks, a client that can't connect says.
func needs() []string {
	return slices.DeleteFunc(acl.Needs(), func(need string) bool { return need == "sentinels" })
}

// direct are the commands that no script runs, as they are tried.
var direct = map[string]string{
	"+ping": "PING", "+evalsha": "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "+scan": "SCAN 0 COUNT 1", "+client|list": "CLIENT LIST TYPE PUBSUB",
	"+wait": "WAIT 0 1", "+info": "INFO server", "+role": "ROLE", "+asking": "ASKING",
	"+cluster|slots": "CLUSTER SLOTS", "+cluster|shards": "CLUSTER SHARDS", "+cluster|nodes": "CLUSTER NODES",
}

// listening are the commands of a connection that listens.
var listening = map[string]func(b rueidis.Builder, channel string) rueidis.Completed{
	"+subscribe":    func(b rueidis.Builder, c string) rueidis.Completed { return b.Subscribe().Channel(c).Build() },
	"+unsubscribe":  func(b rueidis.Builder, c string) rueidis.Completed { return b.Unsubscribe().Channel(c).Build() },
	"+ssubscribe":   func(b rueidis.Builder, c string) rueidis.Completed { return b.Ssubscribe().Channel(c).Build() },
	"+sunsubscribe": func(b rueidis.Builder, c string) rueidis.Completed { return b.Sunsubscribe().Channel(c).Build() },
	"+psubscribe":   func(b rueidis.Builder, c string) rueidis.Completed { return b.Psubscribe().Pattern(c).Build() },
	"+punsubscribe": func(b rueidis.Builder, c string) rueidis.Completed { return b.Punsubscribe().Pattern(c).Build() },
}

// readOnly begins a script that may write nothing, which the server sees after it has looked at the right. Before 7.0
// nothing is tried that could leave a key, and could not be taken away.
const (
	readOnly = "#!lua flags=no-writes\n"
	older    = `if ARGV[1] and string.find('HSET SET ZADD LPUSH RPUSH SADD XADD', ARGV[1], 1, true) then
	local stays = redis.pcall('DEL', KEYS[1])
	stays = type(stays) == 'table' and redis.pcall('PEXPIRE', KEYS[1], 100)
	if type(stays) == 'table' then return '' end
end
`
)

// tryScript runs one command on the key, with as many arguments as it takes, and takes away what it may have left.
const tryScript = `local words, err = ARGV, ''
for i = 1, 5 do
	local r = redis.pcall(unpack(words))
	err = type(r) == 'table' and r.err or ''
	if not string.find(string.lower(err), 'wrong number of arg', 1, true) then break end
	words[#words + 1] = KEYS[1]
end
redis.pcall('DEL', KEYS[1])
redis.pcall('PEXPIRE', KEYS[1], 100)
return err`

// permissions tries every right, and notes the needs of which none is missing.
func (e *examination) permissions(ctx context.Context) {
	name := e.prefix + "redlatch-doctor:" + uuid.NewString()
	e.script = readOnly
	err := e.try(ctx, "return ''", name)
	if err != nil && !denied(err) { // an older server
		e.script = older
		err = e.try(ctx, "return ''", name)
	}
	if err != nil && !denied(err) { // a server that runs no scripts, or not now
		e.add("permissions", "", problem, "scripts can't be run, and no right be tried: "+err.Error(), "")
		return
	} else if err != nil {
		missing := "~" + e.prefix + "*"
		if strings.Contains(err.Error(), "'eval'") {
			missing = "+eval"
		}
		e.add("permissions", "", problem, "missing: "+missing+"; without it scripts can't be run, and no other right be tried: "+err.Error(), "ACL SETUSER … "+missing)
		return
	}
	lacks := map[string]string{}
	for _, need := range needs() {
		needed := e.ifNeeded(need) == problem
		if !needed && slices.Contains([]string{"sentinel", "cluster"}, need) {
			continue // it is none
		}
		rules := acl.Rules(need)
		if !needed {
			rules = acl.Own(need)
		}
		var missing []string
		for _, rule := range rules {
			if _, tried := lacks[rule]; !tried {
				lacks[rule] = strings.Replace(e.lacks(ctx, rule, name), acl.Prefix, e.prefix, 1)
			}
			if lacks[rule] != "" {
				missing = append(missing, lacks[rule])
			}
		}
		slices.Sort(missing)
		text := strings.Join(slices.Compact(missing), " ")
		switch {
		case text == "" && needed:
			e.fit = append(e.fit, need)
			e.add("permissions "+need, "", fine, "all there", "")
		case text != "" && needed:
			e.add("permissions "+need, "", problem, "missing: "+text, "ACL SETUSER … "+text)
		case text != "":
			e.add("permissions "+need, "", note, "missing, and needed only by those who use it: "+text, "")
		}
	}
}

// lacks returns the rule that is missing, if this one, or what it stands for on a cluster, can't be used; else "".
func (e *examination) lacks(ctx context.Context, rule, name string) string {
	publish, sharded := "PUBLISH", e.client.Mode() == rueidis.ClientModeCluster
	if sharded {
		publish = "SPUBLISH"
	}
	what := strings.Replace(strings.Replace(rule[1:], "rw_*", "rw_leases", 1), "app:*", name, 1)
	if strings.Contains(what, "{") {
		what += "}"
	}
	var err error
	switch {
	case slices.Contains([]string{"+hello", "+eval", "+publish", "+spublish"}, rule), sharded && (rule == "+subscribe" || rule == "+unsubscribe"):
		return "" // used already, or with each channel, or not at all
	case listening[rule] != nil:
		if err = e.listen(ctx, rule, "redisson_lock__channel:{"+name+"}"); ofChannel(err) {
			return "" // the channel's own rule is tried, too
		}
	case direct[rule] != "":
		err = e.client.Do(ctx, e.client.B().Arbitrary(strings.Fields(direct[rule])...).Build()).Error()
	case rule[0] == '~':
		err = e.try(ctx, "return ''", what)
	case rule[0] == '&' && !strings.Contains(rule, acl.Prefix): // a pattern, compared as it stands there
		if what == "*" {
			what = "redisson_lock__channel:{" + name + "}:*"
		}
		if err = e.listen(ctx, "+psubscribe", what); !ofChannel(err) {
			return ""
		}
	case rule[0] == '&':
		if err = e.try(ctx, tryScript, name, publish, what, "0"); !ofChannel(err) {
			rule = "+" + strings.ToLower(publish)
		}
	default:
		err = e.try(ctx, tryScript, name, strings.Split(strings.ToUpper(what), "|")...)
	}
	if !denied(err) {
		return ""
	}
	return rule
}

// listen runs a command of a connection that listens on one of its own.
func (e *examination) listen(ctx context.Context, rule, channel string) error {
	return e.client.Dedicated(func(dc rueidis.DedicatedClient) error { return dc.Do(ctx, listening[rule](dc.B(), channel)).Error() })
}

// try runs a script that says what was refused.
func (e *examination) try(ctx context.Context, script, key string, args ...string) error {
	said, err := e.client.Do(ctx, e.client.B().Eval().Script(e.script+script).Numkeys(1).Key(key).Arg(args...).Build()).ToString()
	if err == nil && said != "" {
		err = errors.New(said)
	}
	return err
}

// denied reports whether an error is a missing permission, in the words of servers since Redis 6.
func denied(err error) bool { return err != nil && refusal.MatchString(err.Error()) }

var refusal = regexp.MustCompile(`(?i)noperm|no permissions|the user executing the script can't`)

// ofChannel reports whether a missing permission is that of a channel.
func ofChannel(err error) bool { return denied(err) && strings.Contains(err.Error(), "channel") }
