package luascript

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// loaded is how the package's Go files load the scripts: the name of the
// variable and which other scripts are put in front.
type loaded struct {
	variable string
	parts    []string // the script itself first
}

// sources are the embedded script files with their full text.
func sources() (map[string]string, error) {
	list, err := files.ReadDir(".")
	out := map[string]string{}
	for _, f := range list {
		out[f.Name()] = source(strings.TrimSuffix(f.Name(), ".lua"))
	}
	return out, err
}

func loads(t *testing.T) map[string]loaded {
	t.Helper()
	out := map[string]loaded{}
	sources, err := filepath.Glob("*.go")
	testbed.Must(t, err)
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		testbed.Must(t, err)
		for _, m := range regexp.MustCompile(`(\w+)\s*= load\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			l := loaded{variable: m[1]}
			for part := range strings.SplitSeq(m[2], ",") {
				l.parts = append(l.parts, strings.Trim(strings.TrimSpace(part), `"`))
			}
			out[l.parts[0]] = l
		}
	}
	return out
}

func header(src string) string {
	out := ""
	for line := range strings.Lines(src) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		out += line
	}
	return out
}

// Every script says what it takes, what it answers and why it may run twice.
func TestScriptsHaveHeaders(t *testing.T) {
	files, err := sources()
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	all := loads(t)
	for name, src := range files {
		short := strings.TrimSuffix(name, ".lua")
		own := header(src)
		if !strings.HasPrefix(own, "-- "+short+": ") {
			t.Errorf("%s does not begin with its name and what it does", name)
		}
		wanted := []string{"KEYS"}
		if strings.Contains(src, "ARGV") {
			wanted = append(wanted, "ARGV")
		}
		if l, ok := all[short]; ok { // not a part of others
			wanted = append(wanted, "RETURN", "Twice:")
			for _, part := range l.parts[1:] {
				own += header(files[part+".lua"])
			}
		}
		for _, part := range wanted {
			if !strings.Contains(own, part) {
				t.Errorf("the header of %s has no %s", name, part)
			}
		}
		// What the code uses is described.
		body := strip(src)
		for _, used := range regexp.MustCompile(`(KEYS|ARGV)\[\d+\]`).FindAllString(body, -1) {
			if !strings.Contains(own, used) && !regexp.MustCompile(used[:4]+`\[(i|2i|\d+\.\.\d+)`).MatchString(own) {
				t.Errorf("the header of %s does not describe %s", name, used)
			}
		}
		// Times come from the server.
		if strings.Contains(body, "os.time") || strings.Contains(body, "os.clock") {
			t.Errorf("%s asks a clock that is not the server's", name)
		}
		// A refused message must not undo, or hide, what was done before it.
		for line := range strings.Lines(body) {
			if regexp.MustCompile(`[^p]call\((PUBLISH|ARGV|'S?PUBLISH')`).MatchString(line) {
				t.Errorf("%s publishes without pcall: %s", name, line)
			}
		}
	}
}

// Every script is loaded by a Go file of this package, alone or as a part of
// others, and used outside it.
func TestScriptsAreUsed(t *testing.T) {
	files, err := sources()
	testbed.Must(t, err)
	var code strings.Builder
	err = filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	testbed.Must(t, err)
	used := map[string]bool{}
	for script, l := range loads(t) {
		if !regexp.MustCompile(`luascript\.` + l.variable + `\b`).MatchString(code.String()) {
			t.Errorf("%s.lua (luascript.%s) is used by nobody", script, l.variable)
		}
		for _, part := range l.parts {
			used[part+".lua"] = true
		}
	}
	for name := range files {
		if !used[name] {
			t.Errorf("%s is loaded by nobody", name)
		}
	}
}

func TestScriptBodies(t *testing.T) {
	s := load("acquire")
	if regexp.MustCompile(`(?m)^\s*--|^\s+`).MatchString(s.Body) {
		t.Error("comments or indentation are sent to the server")
	}
	sum := sha1.Sum([]byte(s.Body))
	if s.SHA != hex.EncodeToString(sum[:]) || s.Name != "acquire" {
		t.Error("name or SHA")
	}
}

// The slots are those of the cluster specification and of CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	for key, want := range map[string]uint16{
		"": 0, "123456789": 0x31c3, "foo": 12182, "bar": 5061, "{bar}x": 5061, "foo{bar}{zap}": 5061,
		"foo{{bar}}zap": Slot("{bar"), "foo{}{bar}": 8363, "{user1000}.following": 3443, "{user1000}.followers": 3443,
	} {
		testbed.Equal(t, Slot(key), want, "the slot of", key)
	}
	if Slot("foo{}{bar}") == Slot("bar") {
		t.Error("an empty tag is no tag")
	}
}

// Redisson builds the same names.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		LockChannel("a"):    "redisson_lock__channel:{a}",
		LockChannel("{a}b"): "redisson_lock__channel:{a}b",
		TokenKey("a"):       "redisson_lock_token:{a}",
		Suffix("a", "x"):    "{a}:x",
		Suffix("{a}b", "x"): "{a}b:x",
	} {
		testbed.Equal(t, got, want, "the text")
	}
}
