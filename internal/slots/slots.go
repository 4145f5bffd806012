// Package slots asks a cluster where its slots are.
package slots

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Range is a range of slots and the master that has them, named as the client library names it.
type Range struct {
	From, To uint16
	Node     string
}

// ErrNone is what a node's answer is worth that knows of no slots: it has left the cluster, or is new there.
var ErrNone = errors.New("the cluster has no slots")

// limit is for the answer of one node.
const limit = 2 * time.Second

// Ask asks one node after the other until one knows. The ranges are sorted. It blocks until then, for 2 s
// a node, or until ctx ends; an error is the last node's, or ErrNone.
func Ask(ctx context.Context, nodes map[string]rueidis.Client) ([]Range, error) {
	last := ErrNone
	for addr, node := range nodes { // in any order, for an even load
		ranges, err := ask(ctx, addr, node)
		if err == nil {
			return ranges, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func ask(ctx context.Context, addr string, node rueidis.Client) ([]Range, error) {
	// A limit, but no deadline: the client library would give it to a connection that others use.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(limit, cancel).Stop()
	list, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	var out []Range
	for i := range list {
		if r, ok := read(addr, &list[i]); ok {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, ErrNone
	}
	slices.SortFunc(out, func(a, b Range) int { return int(a.From) - int(b.From) })
	return out, nil
}

// read reads one entry: first and last slot, the master's host and port and more, its replicas.
func read(asked string, entry *rueidis.RedisMessage) (Range, bool) {
	part, err := entry.ToArray()
	if err != nil || len(part) < 3 {
		return Range{}, false
	}
	from, err1 := part[0].AsInt64()
	to, err2 := part[1].AsInt64()
	master, err3 := part[2].ToArray()
	if err1 != nil || err2 != nil || err3 != nil || len(master) < 2 || from < 0 || from > to || to > 1<<14-1 {
		return Range{}, false
	}
	host, _ := master[0].ToString() // nothing where a node does not know its own address
	port, err := master[1].AsInt64()
	if err != nil {
		return Range{}, false
	}
	return Range{uint16(from), uint16(to), Addr(asked, host, strconv.FormatInt(port, 10))}, true // #nosec G115 -- checked above
}

// Addr is a node's address as the client library names it; one that does not know its own host is
// where it was asked.
func Addr(asked, host, port string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

// Find finds a slot's master; "" if it has none.
func Find(ranges []Range, slot uint16) string {
	i, found := slices.BinarySearchFunc(ranges, slot, func(r Range, slot uint16) int {
		switch {
		case r.To < slot:
			return -1
		case r.From > slot:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return ranges[i].Node
}

// Masters are the nodes that have slots, each once.
func Masters(ranges []Range) []string {
	var out []string
	for _, r := range ranges {
		if !slices.Contains(out, r.Node) {
			out = append(out, r.Node)
		}
	}
	return out
}
