// Package luascript holds every script that redlatch runs on a server, each in
// a file of its own with a header that names its KEYS, its ARGV with units, its
// answers and why it is safe to run twice, and every key and channel name.
//
// All scripts decide on the server's clock or on TTLs, touch only keys declared
// in KEYS, and write before they publish.
package luascript

import (
	"crypto/sha1" // #nosec G505 -- EVALSHA names scripts by SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Script is one embedded script.
type Script struct {
	Name string // the file's name without .lua; also the span attribute
	Body string // without the header and other comment lines
	SHA  string // of Body, for EVALSHA
}

// load reads an embedded script and puts the parts that it shares with others in
// front, or where the script or a part before it says so ("parts stand here" for all, "hold
// stands here" for one): behind what most calls come through, which then does not pay for
// them. A cold script takes as long as it is: each function that is made costs it.
func load(name string, parts ...string) *Script {
	before, after, ok := strings.Cut(source(name), "-- parts stand here\n")
	if !ok {
		before, after = "", before
	}
	for _, part := range parts {
		text, marker := source(part), "-- "+part+" stands here\n"
		if !strings.Contains(before+after, marker) {
			before += text
			continue
		}
		before, after = strings.ReplaceAll(before, marker, text), strings.ReplaceAll(after, marker, text)
	}
	body := strip(before + after)
	sum := sha1.Sum([]byte(body)) // #nosec G401 -- not for security
	return &Script{Name: name, Body: body, SHA: hex.EncodeToString(sum[:])}
}

// source is the text of a file; a missing one is a bug that every test sees.
func source(name string) string {
	src, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(fmt.Sprintf("luascript: %v", err))
	}
	return string(src)
}

// strip drops whole-line comments and indentation: what is sent and kept on the
// server is the code alone.
func strip(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}
