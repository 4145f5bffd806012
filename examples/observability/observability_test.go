package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestComposeMountsWhatIsThere keeps compose.yaml in step with the files that it
// names; there is no container engine in these tests.
func TestComposeMountsWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mounts := regexp.MustCompile(`(?m)["\s](\.{1,2}/[^:"\s]+):/`).FindAllStringSubmatch(string(text), -1)
	if len(mounts) < 6 {
		t.Errorf("only %d mounts were found", len(mounts))
	}
	for _, m := range mounts {
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("compose", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, port := range []string{"9464", "9465"} {
		if !strings.Contains(string(text), "0.0.0.0:"+port) || !strings.Contains(read("prometheus.yml"), "shop:"+port) {
			t.Errorf("port %s is served or scraped alone", port)
		}
	}
}
