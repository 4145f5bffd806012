package integration

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// rwRegisterClient reads and writes the register that the sections guard.
type rwRegisterClient struct{ rueidis.Client }

func rwRaw(addr string) (rwRegisterClient, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	return rwRegisterClient{c}, err
}

func (c rwRegisterClient) get() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	v, err := c.Do(ctx, c.B().Get().Key(rwRegister).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return v, err
}

func (c rwRegisterClient) set(v string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return c.Do(ctx, c.B().Set().Key(rwRegister).Value(v).Build()).Error()
}
