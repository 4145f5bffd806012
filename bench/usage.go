package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// admin is the harness's own view of the servers of a measurement, over connections of its own. It is not safe for
// concurrent use.
type admin struct{ clients []rueidis.Client }

func newAdmin(addrs []string) (*admin, error) {
	a := &admin{}
	for _, addr := range addrs {
		c, err := rueidisClient(addr)
		if err != nil {
			a.close()
			return nil, err
		}
		a.clients = append(a.clients, c)
	}
	return a, nil
}

func (a *admin) close() {
	for _, c := range a.clients {
		c.Close()
	}
}

// client is the connection to the first server.
func (a *admin) client() rueidis.Client { return a.clients[0] }

// empty removes every key, so that a measurement finds nothing of the one before it.
func (a *admin) empty(ctx context.Context) error {
	for _, c := range a.clients {
		if err := c.Do(ctx, c.B().Flushall().Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// A usage is what the servers have done since they were started, all of them together.
type usage struct {
	cpu    float64          // seconds, user and system
	calls  map[string]int64 // nil: this server is none of Redis, and nothing is known
	micros map[string]int64 // time in each command, what scripts call included in the script's
}

func (a *admin) usage(ctx context.Context) (usage, error) {
	u := usage{calls: map[string]int64{}, micros: map[string]int64{}}
	for _, c := range a.clients {
		info, err := c.Do(ctx, c.B().Info().Section("cpu", "commandstats").Build()).ToString()
		if err == nil {
			err = u.add(info)
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

func (u *usage) add(info string) error {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		command, counts := strings.CutPrefix(name, "cmdstat_")
		switch {
		case name == "used_cpu_sys" || name == "used_cpu_user":
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("INFO %s: %w", name, err)
			}
			u.cpu += s
		case counts:
			var calls, micros int64
			if _, err := fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &micros); err != nil {
				return fmt.Errorf("INFO %s: %w", name, err)
			}
			u.calls[command] += calls
			u.micros[command] += micros
		}
	}
	return nil
}

func (u usage) since(start usage) usage {
	d := usage{cpu: u.cpu - start.cpu}
	if u.calls == nil {
		return d
	}
	d.calls, d.micros = map[string]int64{}, map[string]int64{}
	for name := range u.calls {
		d.calls[name], d.micros[name] = u.calls[name]-start.calls[name], u.micros[name]-start.micros[name]
	}
	return d
}

// alwaysSent are the commands that no script can call or that no contender's script calls, so that each one counted by
// the server was sent by a client.
var alwaysSent = []string{
	"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall",
	"subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe",
	"wait", "multi", "exec", "watch",
}

// sent counts the commands that clients have sent: one for a script, however much it calls.
func (u usage) sent(further []string) int64 {
	return sumOf(u.calls, alwaysSent) + sumOf(u.calls, further)
}

// executed is how many microseconds the server took for those commands, without reading and writing its sockets.
func (u usage) executed(further []string) int64 {
	return sumOf(u.micros, alwaysSent) + sumOf(u.micros, further)
}

// renewals counts the leases that were set again. Contenders that renew do it by one of these commands.
func (u usage) renewals() int64 {
	return sumOf(u.calls, []string{"pexpire", "pexpireat", "expire", "expireat"})
}

func sumOf(by map[string]int64, names []string) (n int64) {
	for _, name := range names {
		n += by[name]
	}
	return n
}
