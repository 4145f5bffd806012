package work

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// dial opens a connection to the server for the job itself, beside those of its contender.
func dial(s Spec) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: s.Addrs[:1], ForceSingleClient: true, DisableCache: true})
}

// patience is how long a job waits for others to stand where it wants them.
const patience = time.Minute

// queueLength waits until the queue of the fair lock is as long as the row wants it.
func queueLength(ctx context.Context, s Spec) error {
	client, err := dial(s)
	if err != nil {
		return err
	}
	defer client.Close()
	key := "redisson_lock_queue:{" + s.Key + "}"
	deadline := time.Now().Add(patience)
	for {
		n, err := client.Do(ctx, client.B().Llen().Key(key).Build()).AsInt64()
		if err != nil {
			return err
		}
		if n >= int64(s.Queue) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the queue has %d entries, not %d", n, s.Queue)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// subscribed waits, without a pause between two looks, until somebody listens for the release of the plain lock.
func subscribed(ctx context.Context, client rueidis.Client, key string) error {
	channel := "redisson_lock__channel:{" + key + "}" // of builds before clients were called one by one
	for deadline := time.Now().Add(patience); ; {
		n, err := client.Do(ctx, client.B().PubsubNumsub().Channel(channel).Build()).AsIntMap()
		if err != nil {
			return err
		}
		called, err := client.Do(ctx, client.B().PubsubChannels().Pattern("redlatch_wake:{"+key+"}:*").Build()).AsStrSlice()
		if err != nil {
			return err
		}
		if n[channel] > 0 || len(called) > 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nobody listens on %s", channel)
		}
	}
}

// channels is how many channels somebody listens on.
func channels(ctx context.Context, client rueidis.Client) (int, error) {
	list, err := client.Do(ctx, client.B().PubsubChannels().Pattern("red*_*:*").Build()).AsStrSlice()
	return len(list), err
}
