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

// ParseURL makes options from a URL. Parameters that would be ignored are refused. Its
// errors are [lock.ErrInvalidOption]; they quote no part of the URL, which may be one of a password
// that is not encoded. The names in them are from the lists below.
func ParseURL(text string) (rueidis.ClientOption, error) {
	u, err := url.Parse(text)
	if err != nil || strings.Contains(text, "#") || u.User == nil && strings.Contains(u.RawQuery, "@") {
		return rueidis.ClientOption{}, errURL("it is not a redis://, rediss://, valkey://, valkeys:// or unix:// URL")
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
		for says, told := range map[string]error{ // the parser's message may contain the password
			"database number": parameter("db", "it is not a number"),
			"dial timeout":    parameter("dial_timeout", "it is not a duration such as 500ms or 5s"),
			"write timeout":   parameter("write_timeout", "it is not a duration such as 500ms or 5s"),
			"skip verify":     parameter("skip_verify", "it is neither true nor false"),
		} {
			if strings.HasPrefix(err.Error(), "redis: invalid "+says+":") {
				return rueidis.ClientOption{}, told
			}
		}
		return rueidis.ClientOption{}, errURL("it is not a redis://, rediss://, valkey://, valkeys:// or unix:// URL")
	}
	// A Unix socket's path is known by its form: our own dialling does the rest.
	opt.DialCtxFn = nil
	if opt.Sentinel.MasterSet != "" {
		// The address in the URL is a sentinel's: "rediss" is said of it too.
		opt.Sentinel.TLSConfig = opt.TLSConfig
	}
	return opt, nil
}

const (
	encode  = "; in a user or password write % ? # / @ : as %25 %3F %23 %2F %40 %3A"
	ignored = "it would be ignored: "
	pooled  = ignored + "commands share one connection per node; remove it"
	retried = ignored + "redlatch repeats commands itself, within the caller's ctx"
	aging   = ignored + "a connection that ages out repeats commands that may have run; remove it"
	replica = ignored + "a replica can't decide who holds a lock; remove it"
	inFront = ignored + "put it in front of the host: redis://user:password@host"
	useTLS  = ignored + "use a rediss:// URL, with skip_verify, or Config.Redis.TLSConfig"
)

// own are the parameters that act.
var own = strings.Fields("addr client_name client_cache db dial_timeout master_set max_retries protocol skip_verify write_timeout")

// foreign are those that other clients know, by what is said of them.
var foreign = map[string]string{
	pooled: "pool_size min_idle_conns max_idle_conns max_active_conns pool_timeout pool_fifo max_connections " +
		"idle_timeout conn_max_idle_time idle_check_frequency health_check_interval",
	retried: "min_retry_backoff max_retry_backoff max_redirects context_timeout_enabled",
	aging:   "max_conn_age conn_max_lifetime",
	replica: "route_by_latency route_randomly read_only",
	inFront: "user username password",
	useTLS:  "tls ssl ssl_cert_reqs ssl_ca_certs",

	ignored + "use write_timeout, which bounds silence in both directions": "read_timeout socket_timeout timeout",
	ignored + "use dial_timeout":               "connect_timeout connection_timeout socket_connect_timeout",
	ignored + "use db, or the URL's path":      "database",
	ignored + "use client_name":                "name identity_suffix",
	ignored + "use Config.Redis.ClientSetInfo": "disable_identity disable_indentity",
	ignored + "use master_set":                 "sentinelmasterid master_name sentinel_master",
}

// checkParameters refuses what the parser would ignore.
func checkParameters(u *url.URL) error {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errURL("its parameters can't be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(own, name) {
			for why, names := range foreign {
				if known := strings.ToLower(name); slices.Contains(strings.Fields(names), known) {
					return parameter(known, why)
				}
			}
			return errURL("it has a parameter that would be ignored: remove it, or set what you mean in Config.Redis and call New")
		}
		if name != "addr" && len(query[name]) > 1 {
			return parameter(name, "it is given more than once")
		}
		for _, value := range query[name] {
			if why := wrong(name, value, u.Scheme == "rediss" || u.Scheme == "valkeys"); why != "" {
				return parameter(name, why)
			}
		}
	}
	return nil
}

// wrong says what is wrong with a value that the parser would change or ignore.
func wrong(name, value string, secure bool) string {
	_, _, err := net.SplitHostPort(value)
	switch {
	case name == "addr" && err != nil: // the parser would take the URL's own host in its place
		return "it is not host:port"
	case name == "protocol" && value != "2" && value != "3":
		return "only 2 and 3 can be set"
	case name == "max_retries" && value != "0":
		return "only 0 can be set: redlatch repeats commands itself, within the caller's ctx"
	case name == "client_cache" && value != "0":
		return "only 0 can be set: locks can't be read from a client-side cache"
	case name == "skip_verify" && !secure:
		return ignored + "it needs a rediss:// URL"
	}
	return ""
}

func errURL(reason string) error {
	return &lock.InvalidOptionError{Option: "url", Reason: reason + encode}
}

func parameter(name, reason string) error {
	return &lock.InvalidOptionError{Option: fmt.Sprintf("url parameter %q", name), Reason: reason}
}
