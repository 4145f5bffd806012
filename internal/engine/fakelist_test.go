package engine_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
)

// fakeList is what the scripts of plain locks do with the lists of waiting clients: by lock, the
// place of each.
type fakeList map[string]map[string]int64

const fakeLost = int64(4e15)

// argument is one of a script's, or what it takes as given: in a group "" stands for that.
func argument(arg []string, i int, given string) string {
	if i < len(arg) && arg[i] != "" {
		return arg[i]
	}
	return given
}

// placeOf is what an acquisition tells of its client's place.
func placeOf(arg []string) string {
	if len(arg) < 3 {
		return "0"
	}
	return arg[2]
}

// enlist is enlist.lua.
func (l fakeList) enlist(key, field, place string) {
	if place == "" {
		return
	}
	client, _, _ := strings.Cut(field, ":")
	if l[key] == nil {
		l[key] = map[string]int64{}
	}
	if came, _ := strconv.ParseInt(place, 10, 64); came > 1 {
		l[key][client] = came - fakeLost
	} else if _, in := l[key][client]; !in {
		l[key][client] = time.Now().UnixMicro()
	}
}

// granted is what a grant does.
func (l fakeList) granted(key, field, place string) {
	if place != "" && place != "0" {
		client, _, _ := strings.Cut(field, ":")
		delete(l[key], client)
	}
}

// call is wake.lua: publish returns how many have got the message.
func (l fakeList) call(key string, publish func(channel, payload string) int64) int64 {
	for len(l[key]) > 0 {
		first, place := "", int64(0)
		for client, at := range l[key] {
			if first == "" || at < place || at == place && client < first {
				first, place = client, at
			}
		}
		delete(l[key], first)
		came := place
		if place < 0 {
			came += fakeLost
		}
		if publish(luascript.CallChannel(key)+first, strconv.FormatInt(came, 10)) == 0 {
			continue
		}
		if place < 0 {
			return 2
		}
		return 1
	}
	return 0
}

// release is the end of release.lua: what it answers once the lock is free.
func (l fakeList) release(key string, arg []string, publish func(channel, payload string) int64) conn.Reply {
	heard, called := publish(arg[2], "0"), int64(0)
	if len(arg) > 4 {
		if arg[4] != "" {
			client, _, _ := strings.Cut(arg[0], ":")
			delete(l[key], client)
		}
		if called = l.call(key, publish); called > 0 && arg[4] == "1" {
			l.enlist(key, arg[0], "0")
		}
	}
	if called == 2 && heard > 0 {
		called = 1
	}
	if called == 0 && heard == 0 {
		return conn.Reply{Code: 1}
	}
	return conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {Int: called}, {Int: heard}}}
}
