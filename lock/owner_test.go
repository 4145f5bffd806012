package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestParseOwner(t *testing.T) {
	const client = "343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11"
	asked := time.UnixMilli(1756957542400).UTC()
	for text, want := range map[string]OwnerID{
		client + ":g1-mf4v5o1s.1a":         {Client: client, Owner: "g1", Acquisition: "mf4v5o1s.1a", AskedSince: asked, HeldSince: asked},
		client + ":g1-mf4v5o1s.1a:write":   {Client: client, Owner: "g1", Acquisition: "mf4v5o1s.1a", AskedSince: asked, HeldSince: asked},
		client + ":g1-mf4v5o1s.1a.2004":    {Client: client, Owner: "g1", Acquisition: "mf4v5o1s.1a.2004", AskedSince: asked, HeldSince: asked.Add(2004 * time.Millisecond)},
		client + ":g1-mf4v5o1s.1a.-4":      {Client: client, Owner: "g1-mf4v5o1s.1a.", Acquisition: "4"},
		client + ":g1-mf4v5o1s.1a.x":       {Client: client, Owner: "g1", Acquisition: "mf4v5o1s.1a.x", AskedSince: asked},
		client + ":g=job%20a%2Db-cxf":      {Client: client, Owner: "g=job%20a%2Db", Explicit: "job a-b", Acquisition: "cxf"},
		client + ":g=x%-1":                 {Client: client, Owner: "g=x%", Explicit: "x%", Acquisition: "1"},
		client + ":g1-mf4v5o1s.":           {Client: client, Owner: "g1", Acquisition: "mf4v5o1s."},
		client + ":g1-1.1":                 {Client: client, Owner: "g1", Acquisition: "1.1"},
		client + ":g1-":                    {Client: client, Owner: "g1-"},
		client + ":g1--5.1":                {Client: client, Owner: "g1-", Acquisition: "5.1"},
		client + ":g1-zzzzzzzzzzzzzzzzz.1": {Client: client, Owner: "g1", Acquisition: "zzzzzzzzzzzzzzzzz.1"},
		client + ":57":                     {Client: client, Owner: "57"},
	} {
		got, ok := ParseOwner(text)
		if !ok || got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		testbed.Equal(t, got.Java(), (want.Owner == "57"), "whether it is Java's:", text)
		testbed.Equal(t, got.String(), strings.TrimSuffix(text, ":write"), "the text of", text)
	}
	for _, text := range []string{"", "x", client, client + ":", "short:g1-1", ":g1"} {
		if got, ok := ParseOwner(text); ok {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}
