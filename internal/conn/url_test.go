package conn

import (
	"slices"
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
