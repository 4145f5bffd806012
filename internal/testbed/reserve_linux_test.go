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
		if err != nil {
			t.Fatal(err)
		}
		p.Refuse()
		if l, err := net.Listen("tcp", p.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("somebody else listens: %v", err)
			if err == nil {
				_ = l.Close()
			}
		}
		if c, err := net.DialTimeout("tcp", p.Addr(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting: %v", err)
			if err == nil {
				_ = c.Close()
			}
		}
		p.Admit(t)
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	}
}
