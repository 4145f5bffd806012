package main

import (
	"cmp"
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// lockConfig makes redlatch's configuration from go-redis' options: where the
// server is and how to log in. Options about pools and retries have no
// counterpart: redlatch has one connection for commands and one for messages, and
// retries by its own rules.
func lockConfig(o *redis.Options) (redlatch.Config, error) {
	switch {
	case o.CredentialsProviderContext != nil, o.StreamingCredentialsProvider != nil:
		return redlatch.Config{}, errors.New("write an AuthCredentialsFn for rueidis that does what your provider does")
	case o.Dialer != nil:
		return redlatch.Config{}, errors.New("write a DialCtxFn for rueidis that does what your Dialer does")
	}
	option := rueidis.ClientOption{
		InitAddress:       []string{cmp.Or(o.Addr, "localhost:6379")},
		Username:          o.Username,
		Password:          o.Password,
		SelectDB:          o.DB,
		TLSConfig:         o.TLSConfig,
		ClientName:        o.ClientName,
		AlwaysRESP2:       o.Protocol == 2,
		ForceSingleClient: true, // redis.NewClient is for one server; leave it out for Sentinel and Cluster
	}
	option.Dialer.Timeout = o.DialTimeout
	if o.CredentialsProvider != nil {
		option.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			user, password := o.CredentialsProvider()
			return rueidis.AuthCredentials{Username: user, Password: password}, nil
		}
	}
	if o.Network == "unix" {
		socket, err := rueidis.ParseURL("unix://" + o.Addr)
		if err != nil {
			return redlatch.Config{}, err
		}
		option.InitAddress, option.DialCtxFn = socket.InitAddress, socket.DialCtxFn
	}
	return redlatch.Config{Redis: option}, nil
}
