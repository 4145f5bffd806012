package main

import (
	"context"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// What comes from Redis is turned into text that prints as soon as the SDK has it: into quote.Exact, which can be read
// back. Everything behind that shows, compares and sends this text: tables, JSON, the page, questions, logs. The names
// and owners that users give, or programs send, are read back just before the SDK gets them.

// maxExact bounds such a text; the SDK takes no field for a hold that is so long.
const maxExact = 8 << 10

func exact(text string) string {
	if len(text) > maxExact {
		return quote.Text(text)
	}
	return quote.Exact(text)
}

// shown is what is known of a lock, as text that prints.
func shown(in redlatch.Inspection) redlatch.Inspection {
	in.Name, in.Key = exact(in.Name), exact(in.Key)
	for i := range in.Holders {
		h := &in.Holders[i]
		h.Owner, h.TraceID, h.Process = exact(h.Owner), quote.Text(h.TraceID), shownProcess(h.Process)
	}
	for i := range in.Queue {
		w := &in.Queue[i]
		w.Owner, w.Process = exact(w.Owner), shownProcess(w.Process)
	}
	return in
}

func shownProcess(p redlatch.Process) redlatch.Process {
	p.ClientID, p.Client, p.Addr = quote.Text(p.ClientID), quote.Text(p.Client), quote.Text(p.Addr)
	return p
}

// given reads a name or an owner that somebody gave.
func given(what, text string) (string, error) {
	out, err := quote.Parse(text)
	if err != nil {
		return "", usageError(`%s: %s: a backslash begins an escape such as \n or \xff; give two for one`, what, quote.Text(text))
	}
	return out, nil
}

// look looks at the lock of a name that somebody gave.
func look(ctx context.Context, client *redlatch.Client, name string) (redlatch.Inspection, error) {
	raw, err := given("name", name)
	if err != nil {
		return redlatch.Inspection{}, err
	}
	in, err := client.Inspect(ctx, raw)
	return shown(in), err
}
