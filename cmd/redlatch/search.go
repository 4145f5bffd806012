package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// search asks the servers for what no Inspection tells: which clients have that name, and who else of more than a
// thousand holders is meant. It adds the owners to found, as Redis has them; one that is given whole is the only one.
func (a *app) search(ctx context.Context, in redlatch.Inspection, wanted string, found map[string]bool) error {
	client, _, err := a.connect("unlock")
	if err != nil {
		return err
	}
	defer client.Close()
	s := search{client}
	key, err := given("key", in.Key)
	if err != nil {
		return err
	}
	all := len(in.Holders) >= in.HolderCount
	if !all {
		if whole, err := s.holds(ctx, key, wanted); whole || err != nil {
			clear(found)
			found[wanted] = true
			return err
		}
	}
	ids, err := s.clients(ctx, wanted)
	if err != nil {
		return err
	}
	patterns := []string{globEscaper.Replace(wanted) + "*"}
	for _, id := range ids {
		patterns = append(patterns, globEscaper.Replace(id)+":*")
		for _, h := range in.Holders {
			if owner, err := given("owner", h.Owner); err == nil && strings.HasPrefix(owner, id+":") {
				found[owner] = true
			}
		}
	}
	if all {
		return nil
	}
	return s.fields(ctx, key, patterns, found)
}

// search is a connection to ask with.
type search struct{ client rueidis.Client }

// clients are the ids of the clients of that name. Anybody can name a connection: of a client whose connections have
// several names it can't be told which one is true.
func (s search) clients(ctx context.Context, name string) ([]string, error) {
	names := map[string]map[string]bool{} // by id
	for _, node := range s.client.Nodes() {
		text, err := node.Do(ctx, node.B().Arbitrary("CLIENT", "LIST", "TYPE", "NORMAL").Build()).ToString()
		if err != nil {
			continue // not permitted, or not there: its clients are not known by name
		}
		for word := range strings.FieldsSeq(text) {
			rest, ok := strings.CutPrefix(word, "name=redlatch:")
			at := strings.LastIndexByte(rest, ':')
			if !ok || at < 0 {
				continue
			}
			id := rest[at+1:]
			if names[id] == nil {
				names[id] = map[string]bool{}
			}
			names[id][rest[:at]] = true
		}
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(names)) {
		if !names[id][name] {
			continue
		}
		if len(names[id]) > 1 {
			return nil, usageError(fmt.Sprintf("owner: the connections of the client %s have several names (%s); give the whole owner",
				quote.Text(id), quote.Text(strings.Join(slices.Sorted(maps.Keys(names[id])), ", "))))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// holds reports whether a whole owner has a field in the lock at key.
func (s search) holds(ctx context.Context, key, owner string) (bool, error) {
	for _, field := range []string{owner, owner + ":write"} {
		err := s.client.Do(ctx, s.client.B().Hget().Key(key).Field(field).Build()).Error()
		if !rueidis.IsRedisNil(err) {
			return err == nil, err
		}
	}
	return false, nil
}

// fields adds owners whose fields match one of the patterns, until it has two.
func (s search) fields(ctx context.Context, key string, patterns []string, found map[string]bool) error {
	for _, pattern := range patterns {
		for cursor := uint64(0); len(found) < 2; {
			cmd := s.client.B().Hscan().Key(key).Cursor(cursor).Match(pattern).Count(1000).Build()
			some, err := s.client.Do(ctx, cmd).AsScanEntry()
			if err != nil {
				return err
			}
			for i := 0; i < len(some.Elements); i += 2 {
				if field := some.Elements[i]; field != "mode" {
					found[strings.TrimSuffix(field, ":write")] = true
				}
			}
			if cursor = some.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}
