package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestConnectionsEndAtMostOncePerPause, however often a replica refuses, at once at first, and more
// and more rarely; an outage is told once.
func TestConnectionsEndAtMostOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d demotion
		var ends []float64 // in seconds
		told := 0
		refuseFor := func(length time.Duration) {
			ends = nil
			for began := time.Now(); time.Since(began) < length; time.Sleep(10 * time.Millisecond) {
				end, first := d.refused(time.Now())
				if end {
					ends = append(ends, time.Since(began).Seconds())
				}
				if first {
					told++
				}
			}
		}
		want := func(outages int, seconds ...float64) {
			t.Helper()
			if !slices.Equal(ends, seconds) || told != outages {
				t.Errorf("ended %d times, first at %v, told %d times; want %v, %d", len(ends), ends[:min(len(ends), 9)], told, seconds, outages)
			}
		}
		refuseFor(20 * time.Second)
		want(1, 0, 1, 2, 4, 8, 13, 18)
		time.Sleep(20 * time.Second)
		refuseFor(time.Second)
		want(1, 0)
		time.Sleep(31 * time.Second)
		refuseFor(3 * time.Second)
		want(2, 0, 1, 2)
	})
}

// TestAReplicaCostsItsConnections where another one may lead to the master, and nowhere else.
func TestAReplicaCostsItsConnections(t *testing.T) {
	const readonly = "READONLY You can't write against a read only replica."
	for name, tc := range map[string]struct {
		says error
		make func(*Conn) // nil: an own client of one server
		ends bool
	}{
		"READONLY":          {says: Refusal(readonly), ends: true},
		"before Redis 7":    {says: Refusal("Error running script (call to f_8f): @user_script:22: @user_script: 22: -" + readonly), ends: true},
		"MASTERDOWN":        {says: Refusal("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), ends: true},
		"another refusal":   {says: Refusal("NOREPLICAS Not enough good replicas to write.")},
		"a broken one":      {says: io.EOF},
		"a cluster":         {says: Refusal(readonly), make: func(c *Conn) { c.topo.Cluster = true }},
		"Sentinel":          {says: Refusal(readonly), make: func(c *Conn) { c.watch = new(masterWatch) }},
		"a borrowed client": {says: Refusal(readonly), make: func(c *Conn) { c.dial = nil }},
		"it dials itself":   {says: Refusal(readonly), make: func(c *Conn) { c.dial = new(dialler) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer func() { _, _ = near.Close(), far.Close() }()
				d := new(dialler)
				link, err := d.track(near, nil)
				testbed.Must(t, err)
				told, began := 0, time.Now()
				heard := make(chan time.Duration, 9)
				c := &Conn{dial: d}
				c.OnReplica(func() {
					after := time.Since(began)
					heard <- after
					if err := link.SetDeadline(time.Time{}); err != nil && after == 0 {
						t.Error("the connection has ended already:", err)
					}
				}, func(err error, first bool) {
					if told++; !errors.Is(err, tc.says) || !first {
						t.Error(err, first)
					}
					if err := link.SetDeadline(time.Time{}); err == nil {
						t.Error("the connection has not ended yet")
					}
				})
				if tc.make != nil {
					tc.make(c)
				}
				c.note(tc.says)
				c.note(tc.says)
				testbed.Equal(t, told, map[bool]int{true: 1}[tc.ends], "times that it was told")
				testbed.Equal(t, link.SetDeadline(time.Time{}) != nil, tc.ends, "whether the connection has ended")
				near, far = net.Pipe()
				defer func() { _, _ = near.Close(), far.Close() }()
				meanwhile, err := d.track(near, nil) // the address may lead to the replica still
				testbed.Must(t, err)
				time.Sleep(time.Minute)
				synctest.Wait()
				testbed.Equal(t, meanwhile.SetDeadline(time.Time{}) != nil, tc.ends, "whether a later one has")
				close(heard)
				var got, want []time.Duration
				for after := range heard {
					got = append(got, after)
				}
				if tc.ends {
					want = append(want, 0, redialLeast) // what was subscribed in between is left, too
				}
				testbed.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "when subscriptions were to be made anew")
			})
		})
	}
}

// TestAReplicaThatReadsNothingIsLeftAtOnce: nobody waits for it to take the farewell of TLS.
func TestAReplicaThatReadsNothingIsLeftAtOnce(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	server.Close()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		shaken := make(chan error)
		go func() {
			shaken <- tls.Server(far, &tls.Config{Certificates: server.TLS.Certificates, SessionTicketsDisabled: true}).Handshake()
		}()
		secret := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
		testbed.Must(t, secret.Handshake())
		testbed.Must(t, <-shaken)
		d := new(dialler)
		_, err := d.track(secret, nil)
		testbed.Must(t, err)
		began := time.Now()
		(&Conn{dial: d}).note(Refusal("READONLY"))
		testbed.AtMost(t, time.Since(began), 0, "it took")
		if _, err := secret.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Error("the connection:", err)
		}
	})
}
