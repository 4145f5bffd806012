package conn

import (
	"slices"
	"strings"
	"testing"
)

// TestTheSlashOfAURL is no database, whether parameters follow it or not.
func TestTheSlashOfAURL(t *testing.T) {
	for text, want := range map[string]struct {
		addrs []string
		db    int
		name  string
	}{
		"redis://h:6379":                                 {[]string{"h:6379"}, 0, ""},
		"redis://h:6379/":                                {[]string{"h:6379"}, 0, ""},
		"redis://h:6379/?client_name=shop":               {[]string{"h:6379"}, 0, "shop"},
		"redis://h:6379/?client_name=a/b/":               {[]string{"h:6379"}, 0, "a/b/"},
		"redis://h:6379/?addr=i:6380&client_name=shop":   {[]string{"h:6379", "i:6380"}, 0, "shop"},
		"redis://h:6379/3?client_name=shop":              {[]string{"h:6379"}, 3, "shop"},
		"rediss://u:p%3F@h:6379/?db=3":                   {[]string{"h:6379"}, 3, ""},
		"unix:///run/redis.sock?db=3":                    {[]string{"/run/redis.sock"}, 3, ""},
		"valkey://[::1]:6379/?protocol=2&max_retries=0":  {[]string{"[::1]:6379"}, 0, ""},
		"valkeys://h:6379/?skip_verify":                  {[]string{"h:6379"}, 0, ""},
		"redis://h:1/?master_set=m&addr=:2&addr=[::1]:3": {[]string{"h:1", "h:2", "[::1]:3"}, 0, ""},
	} {
		opt, err := ParseURL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !slices.Equal(opt.InitAddress, want.addrs) || opt.SelectDB != want.db || opt.ClientName != want.name {
			t.Errorf("%s: %v, database %d, name %q", text, opt.InitAddress, opt.SelectDB, opt.ClientName)
		}
	}
	for _, text := range []string{
		"redis://h:6379/x", "redis://h:6379/1/2?client_name=shop", "http://h:6379/?db=1",
		"redis://h:6379/?addr=", "redis://h:6379?addr=i", // the client library would take h for both
	} {
		if opt, err := ParseURL(text); err == nil {
			t.Errorf("%s: %+v", text, opt)
		}
	}
}

// TestAURLWithoutAServer is refused and not taken for one of localhost, where each machine's processes would exclude
// their own only. The error says what is missing, and shows no part of the URL.
func TestAURLWithoutAServer(t *testing.T) {
	for _, text := range []string{
		"redis:", "redis://", "redis:///", "redis:///3", "rediss://:7777", "redis:h:6379", "valkey://user:hunter2@", "valkeys://user:hunter2@:7777/3",
		"redis://?addr=h:1", "redis:///?addr=h:1", "unix://", "unix:///", "unix:", "unix://user:hunter2@?db=3",
	} {
		opt, err := ParseURL(text)
		if err == nil || !strings.Contains(err.Error(), "no server: write redis://host:6379,") {
			t.Errorf("%s: %v, %v", text, opt.InitAddress, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "7777")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
