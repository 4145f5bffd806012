package conn

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// ParseURL makes options from a URL. rueidis.ParseURL checks what it knows; parameters that it would ignore
// are refused here. The errors are [lock.ErrInvalidOption]; they quote no part of the URL, which may be one
// of a password that is not encoded, nor a message of the parser's. The names in them are from the lists below.
func ParseURL(text string) (rueidis.ClientOption, error) {
	u, err := url.Parse(text)
	if err != nil || strings.Contains(text, "#") || u.User == nil && strings.Contains(u.RawQuery, "@") || !parses(u.Scheme, nil) {
		return rueidis.ClientOption{}, errURL
	}
	if u.Scheme != "unix" && u.Hostname() == "" || u.Scheme == "unix" && strings.Trim(u.Path, "/") == "" {
		return rueidis.ClientOption{}, errNowhere // not localhost: replicas that were given no host would lock one by one
	}
	if err := checkParameters(u); err != nil {
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
		return rueidis.ClientOption{}, errURL
	}
	// A Unix socket's path is known by its form: our own dialling does the rest.
	opt.DialCtxFn = nil
	if opt.Sentinel.MasterSet != "" {
		// The address in the URL is a sentinel's: "rediss" is said of it too.
		opt.Sentinel.TLSConfig = opt.TLSConfig
	}
	return opt, nil
}

const encode = "; in a user or password write % ? # / @ : as %25 %3F %23 %2F %40 %3A"

var (
	errURL     = &lock.InvalidOptionError{Option: "url", Reason: "it is not a redis://, rediss://, valkey://, valkeys:// or unix:// URL" + encode}
	errNowhere = &lock.InvalidOptionError{Option: "url", Reason: "it names no server: write redis://host:6379, or unix:///path/to/redis.sock" + encode}
	errOdd     = &lock.InvalidOptionError{Option: "url", Reason: "it has a parameter that would be ignored: " +
		"remove it, or set what you mean in Config.Redis and call New" + encode}
)

const duration = "it is not a duration such as 500ms or 5s"

// own are the parameters that act, each with what is said of a value that is no use.
var own = map[string]string{
	"addr": "it is not host:port", "db": "it is not a number", "client_name": "", "master_set": "",
	"dial_timeout": duration, "write_timeout": duration, "skip_verify": "it is true or false, and needs a rediss:// URL",
	"protocol":     "only 2 and 3 can be set",
	"max_retries":  "only 0 can be set: redlatch repeats commands itself, within the caller's ctx",
	"client_cache": "only 0 can be set: locks can't be read from a client-side cache",
}

// foreign are those that other clients know, by what is said of them.
var foreign = map[string]string{
	"commands share one connection per node; remove it": "pool_size min_idle_conns max_idle_conns max_active_conns pool_timeout " +
		"pool_fifo max_connections idle_timeout conn_max_idle_time idle_check_frequency health_check_interval",
	"redlatch repeats commands itself, within the caller's ctx":        "min_retry_backoff max_retry_backoff max_redirects context_timeout_enabled",
	"a connection that ages out repeats commands that may have run":    "max_conn_age conn_max_lifetime",
	"a replica can't decide who holds a lock; remove it":               "route_by_latency route_randomly read_only",
	"put it in front of the host: redis://user:password@host":          "user username password",
	"use a rediss:// URL, with skip_verify, or Config.Redis.TLSConfig": "tls ssl ssl_cert_reqs ssl_ca_certs",
	"use write_timeout, which bounds silence in both directions":       "read_timeout socket_timeout timeout",
	"use dial_timeout": "connect_timeout connection_timeout socket_connect_timeout",
	"use db":           "database",
	"use client_name":  "name",
	"use master_set":   "sentinelmasterid master_name sentinel_master",
}

// checkParameters refuses what the parser would ignore, change or refuse.
func checkParameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errURL
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		says, acts := own[name]
		if !acts {
			known := strings.ToLower(name)
			for why, names := range foreign {
				if slices.Contains(strings.Fields(names), known) {
					return parameter(known, "it would be ignored: "+why)
				}
			}
			return errOdd
		}
		if name != "addr" && len(query[name]) > 1 {
			return parameter(name, "it is given more than once")
		}
		for _, value := range query[name] {
			if !acceptable(u.Scheme, name, value) {
				return parameter(name, says)
			}
		}
	}
	return nil
}

// acceptable reports whether the parser takes a value as it is.
func acceptable(scheme, name, value string) bool {
	switch name {
	case "addr": // the parser would take the URL's own host in its place
		_, _, err := net.SplitHostPort(value)
		return err == nil
	case "protocol":
		return value == "2" || value == "3"
	case "max_retries", "client_cache":
		return value == "0"
	case "skip_verify":
		return (scheme == "rediss" || scheme == "valkeys") && parses(scheme, url.Values{name: {value}})
	}
	return parses(scheme, url.Values{name: {value}})
}

func parses(scheme string, query url.Values) bool {
	_, err := rueidis.ParseURL(scheme + "://h?" + query.Encode())
	return err == nil
}

func parameter(name, reason string) error {
	return &lock.InvalidOptionError{Option: fmt.Sprintf("url parameter %q", name), Reason: reason}
}
