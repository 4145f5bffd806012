package conn

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// ParseURL makes options from a URL. Parameters that would be ignored are refused. Its
// errors are [lock.ErrInvalidOption]; they contain neither the URL nor a value of it.
func ParseURL(text string) (rueidis.ClientOption, error) {
	if err := checkURL(text); err != nil {
		return rueidis.ClientOption{}, err
	}
	// "redis://host:6379/" means no database, though the parser takes the slash for one; nor does
	// "redis://host:6379/?client_name=shop".
	place, query, asks := strings.Cut(text, "?")
	if text = strings.TrimSuffix(place, "/"); asks {
		text += "?" + query
	}
	opt, err := rueidis.ParseURL(text)
	if err != nil {
		return rueidis.ClientOption{}, errURL()
	}
	// A Unix socket's path is known by its form: our own dialling does the rest.
	opt.DialCtxFn = nil
	if opt.Sentinel.MasterSet != "" {
		// The address in the URL is a sentinel's: "rediss" is said of it too.
		opt.Sentinel.TLSConfig = opt.TLSConfig
	}
	return opt, nil
}

// errURL leaves out the parser's message, which may contain the URL, and with it
// the password.
func errURL() error {
	return &lock.InvalidOptionError{Option: "url", Reason: "it is not a redis://, rediss://, valkey://, valkeys:// or unix:// URL"}
}

// parameters are those that a URL may have, each with a check that says what is
// wrong with a value.
var parameters = map[string]func(value string) string{
	"addr": func(value string) string {
		// The parser would take the URL's own host in its place.
		_, _, err := net.SplitHostPort(value)
		return whyNot(err, "it is not host:port")
	},
	"client_name": anything,
	"master_set":  anything,
	"db": func(value string) string {
		_, err := strconv.Atoi(value)
		return whyNot(err, "it is not a number")
	},
	"dial_timeout":  duration,
	"write_timeout": duration,
	"skip_verify": func(value string) string {
		if value == "" {
			return ""
		}
		_, err := strconv.ParseBool(value)
		return whyNot(err, "it is neither true nor false")
	},
	"protocol":     oneOf("2", "3"),
	"max_retries":  oneOf("0"),
	"client_cache": oneOf("0"),
}

func anything(string) string { return "" }

func duration(value string) string {
	_, err := time.ParseDuration(value)
	return whyNot(err, "it is not a duration such as 500ms or 5s")
}

func oneOf(values ...string) func(string) string {
	return func(value string) string {
		if slices.Contains(values, value) {
			return ""
		}
		return "only " + strings.Join(values, " and ") + " can be set"
	}
}

func whyNot(err error, reason string) string {
	if err == nil {
		return ""
	}
	return reason
}

// instead says what to use in place of parameters that other libraries know.
var instead = map[string]string{
	"max_retries":  "redlatch repeats commands itself, within the caller's ctx",
	"client_cache": "locks can't be read from a client-side cache",
	"skip_verify":  "it needs a rediss:// URL",

	// go-redis
	"pool_size":               "commands share one connection per node; remove it",
	"min_idle_conns":          "commands share one connection per node; remove it",
	"max_idle_conns":          "commands share one connection per node; remove it",
	"max_active_conns":        "commands share one connection per node; remove it",
	"pool_timeout":            "no call waits for a connection; limit a call by its ctx",
	"pool_fifo":               "commands share one connection per node; remove it",
	"read_timeout":            "use write_timeout, which bounds silence in both directions, or limit a call by its ctx",
	"min_retry_backoff":       "redlatch repeats commands itself, within the caller's ctx",
	"max_retry_backoff":       "redlatch repeats commands itself, within the caller's ctx",
	"idle_timeout":            "the connection is kept open; remove it",
	"conn_max_idle_time":      "the connection is kept open; remove it",
	"idle_check_frequency":    "the connection is kept open; remove it",
	"max_conn_age":            "a connection that ages out repeats commands that may have run; remove it",
	"conn_max_lifetime":       "a connection that ages out repeats commands that may have run; remove it",
	"route_by_latency":        "a replica can't decide who holds a lock; remove it",
	"route_randomly":          "a replica can't decide who holds a lock; remove it",
	"read_only":               "a replica can't decide who holds a lock; remove it",
	"max_redirects":           "redirections are followed as long as ctx allows; remove it",
	"context_timeout_enabled": "ctx is always obeyed; remove it",
	"identity_suffix":         "use client_name",
	"disable_identity":        "use Config.Redis.ClientSetInfo",
	"disable_indentity":       "use Config.Redis.ClientSetInfo",

	// other clients
	"timeout":                "use dial_timeout and write_timeout",
	"connect_timeout":        "use dial_timeout",
	"connection_timeout":     "use dial_timeout",
	"socket_timeout":         "use write_timeout",
	"socket_connect_timeout": "use dial_timeout",
	"health_check_interval":  "use Config.Redis.Dialer.KeepAlive",
	"max_connections":        "commands share one connection per node; remove it",
	"database":               "use db, or the URL's path",
	"name":                   "use client_name",
	"user":                   "put it in front of the host: redis://user:password@host",
	"username":               "put it in front of the host: redis://user:password@host",
	"password":               "put it in front of the host: redis://user:password@host",
	"sentinelmasterid":       "use master_set",
	"master_name":            "use master_set",
	"sentinel_master":        "use master_set",
	"tls":                    "use a rediss:// URL",
	"ssl":                    "use a rediss:// URL",
	"ssl_cert_reqs":          "use a rediss:// URL with skip_verify, or Config.Redis.TLSConfig",
	"ssl_ca_certs":           "use Config.Redis.TLSConfig",
}

// checkURL refuses parameters that would be ignored.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errURL()
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errURL()
	}
	secure := u.Scheme == "rediss" || u.Scheme == "valkeys"
	for _, name := range slices.Sorted(maps.Keys(query)) {
		check, known := parameters[name]
		reason := ""
		switch {
		case !known:
			reason = "it would be ignored"
		case name == "skip_verify" && !secure:
			reason = "it would be ignored"
		case name != "addr" && len(query[name]) > 1:
			reason = "it is given more than once"
		default:
			for _, value := range query[name] {
				if reason = check(value); reason != "" {
					break
				}
			}
		}
		if reason == "" {
			continue
		}
		switch advice := instead[strings.ToLower(name)]; {
		case advice != "":
			reason += ": " + advice
		case !known:
			reason += ": remove it, or set what you mean in Config.Redis and call New"
		}
		return &lock.InvalidOptionError{Option: fmt.Sprintf("url parameter %.40q", name), Reason: reason}
	}
	return nil
}
