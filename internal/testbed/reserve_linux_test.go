package testbed

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestRefusedPortStaysOurs: while a proxy refuses connections nobody else gets its
// port, so that they are refused; and it can be opened again, connections of before
// or not.
func TestRefusedPortStaysOurs(t *testing.T) {
	s := Standalone(t)
	p := NewProxy(t, s.Addr())
	for range 20 {
		old, err := net.Dial("tcp", p.Addr())
		Must(t, err)
		p.Refuse()
		if _, err := net.Listen("tcp", p.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("somebody else listens: %v", err)
		}
		if _, err := net.DialTimeout("tcp", p.Addr(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connecting: %v", err)
		}
		p.Admit(t)
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	}
}
