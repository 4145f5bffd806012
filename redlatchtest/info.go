package redlatchtest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/uuid"
)

// info answers what the embedded server does not know, or knows wrongly.
type info struct {
	mu    sync.Mutex
	runID string    // guarded by mu
	since time.Time // guarded by mu
}

func newInfo() *info {
	i := &info{}
	i.restart()
	return i
}

func (i *info) restart() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.runID = strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")[:40]
	i.since = time.Now()
}

// hook is called before every command; true: it has answered.
func (i *info) hook(peer *server.Peer, command string, args ...string) bool {
	switch command {
	case "CLUSTER":
		// The server answers questions about a cluster, but can't do what clients expect
		// of one (sharded channels): a plain server refuses them.
		peer.WriteError("ERR This instance has cluster support disabled")
		return true
	case "INFO":
		if len(args) != 1 || !strings.EqualFold(args[0], "server") {
			return false
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		peer.WriteBulk(fmt.Sprintf("# Server\r\nredis_version:7.0.0\r\nprocess_id:%d\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			os.Getpid(), i.runID, int(time.Since(i.since).Seconds())))
		return true
	}
	return false
}
