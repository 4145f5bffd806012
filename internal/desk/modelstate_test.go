package desk

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// state is all keys of a lock in the model, in the words of the dump.
func (s *server) state(key string) string {
	k := s.key(key)
	hash, ttl := "", -2*ms
	if k.count > 0 {
		hash, ttl = fmt.Sprintf("%s %d", fieldName(k.holder.client, k.holder.id), k.count), k.ends-s.now
	}
	list := slices.Clone(k.list)
	slices.SortFunc(list, func(a, b place) int {
		if a.score != b.score {
			return int(min(max(a.score-b.score, -1), 1))
		}
		return a.client - b.client
	})
	var places, void []string
	for _, p := range list {
		places = append(places, fmt.Sprintf("%s %d", map[bool]string{true: "lost", false: "new"}[p.score < 0], p.client))
	}
	for _, f := range k.void {
		void = append(void, fieldName(f.client, f.id))
	}
	slices.Sort(void)
	return strings.Join([]string{
		hash, strconv.Itoa(int((ttl + 5*time.Second) / (10 * time.Second))), strings.Join(places, ","),
		map[bool]string{true: "1", false: "0"}[len(list) > 0], strings.Join(slices.Compact(void), " "),
	}, "|")
}

// answersOf are a sequence's on the model: after each step the answer and the state.
func answersOf(ops []op, heard func(client int, key string) bool, all bool, counts bool) (out []string) {
	s := server{keys: map[string]*lockState{}, came: 1000, counts: counts}
	s.hears = func(client int, key string, _ Place) bool { return heard(client, key) }
	s.tells = func(string) bool { return all }
	again := map[string]bool{}
	for _, o := range ops {
		k, answer := s.key(o.cmd.Key), ""
		switch o.what {
		case "locks":
			if k.heldBy(field{foreign, o.cmd.Field}) {
				k.count++
				k.ends = s.now + 10*time.Second
			} else {
				s.others(o.cmd.Key, o.cmd.Field, true, 10*time.Second)
			}
		case "unlocks":
			if k.heldBy(field{foreign, o.cmd.Field}) && k.count > 1 {
				k.count--
			} else {
				s.others(o.cmd.Key, o.cmd.Field, false, 0)
			}
		case "expires":
			k.count = 0
		case "forced":
			s.force(o.cmd.Key)
		default:
			answer = said(s.run(o.client, o.cmd), again)
		}
		out = append(out, answer, s.state(o.cmd.Key))
	}
	return out
}
