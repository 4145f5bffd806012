package redlatch_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// publicPackages are what a program may import, by folder.
var publicPackages = []string{"", "lock", "rlock", "fairlock", "rwlock", "multilock", "otel", "redlatchtest"}

// public are these packages as they are compiled, by folder.
func public(t *testing.T) map[string]*types.Package {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}", ".", "./redlatchtest")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	compiled := map[string]string{}
	for line := range strings.Lines(string(out)) {
		pkg, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		compiled[pkg] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(pkg string) (io.ReadCloser, error) { return os.Open(compiled[pkg]) })
	all := map[string]*types.Package{}
	for _, dir := range publicPackages {
		if all[dir], err = imports.Import(path.Join(modulePath, dir)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// exported are the objects of a package that a program can name.
func exported(pkg *types.Package) (all []types.Object) {
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			all = append(all, obj)
		}
	}
	return all
}

// The public API has the names and shapes of testdata/api.txt; programs that use it compile with every version. A line
// there that changes or goes is a breaking change, and so is a method more of an interface that programs implement, as
// Hold and Locker. Write it anew with go test . -run TestAPI -update. No line has a type of an internal package.
func TestAPI(t *testing.T) {
	const file = "testdata/api.txt"
	lines := api(slices.Collect(maps.Values(public(t)))...)
	if *update {
		testbed.Must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	text, err := os.ReadFile(file)
	testbed.Must(t, err)
	written := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range written {
		if !slices.Contains(lines, line) {
			t.Errorf("programs that use this may not compile any more: %s", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(written, line) || showsInternal(line) {
			t.Errorf("not in %s, or of an internal type: %s", file, line)
		}
	}
}

func showsInternal(line string) bool { return strings.Contains(line, "internal/") }

// relative names packages below the module.
func relative(pkg *types.Package) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg.Path(), modulePath+"/"), path.Dir(modulePath)+"/")
}

// unexported types stand in lines as package.name.
var unexported = regexp.MustCompile(`([\w/]+)\.([a-z]\w*)\b`)

// api are the lines of what programs can see of packages: of the exported objects, and of the types that they lead to.
func api(pkgs ...*types.Package) (lines []string) {
	seen := map[types.Object]bool{}
	var add func(obj types.Object)
	add = func(obj types.Object) {
		if seen[obj] {
			return
		}
		seen[obj] = true
		for _, line := range shape(obj) {
			lines = append(lines, line)
			for _, found := range unexported.FindAllStringSubmatch(line, -1) {
				if i := slices.IndexFunc(pkgs, func(p *types.Package) bool { return relative(p) == found[1] }); i >= 0 {
					if of, is := pkgs[i].Scope().Lookup(found[2]).(*types.TypeName); is && !of.IsAlias() {
						add(of)
					}
				}
			}
		}
	}
	for _, pkg := range pkgs {
		for _, obj := range exported(pkg) {
			add(obj)
		}
	}
	slices.Sort(lines)
	return lines
}

// shape are the lines of an object: its own, those of its exported fields and of its methods, promoted ones included.
func shape(obj types.Object) []string {
	text := func(t types.Type) string { return types.TypeString(t, relative) }
	is, named := obj.Type().(*types.Named)
	if _, defines := obj.(*types.TypeName); !defines || !named {
		return []string{types.ObjectString(obj, relative)}
	}
	name := text(is)
	lines := []string{"type " + name + " " + text(is.Underlying())}
	methods := types.NewMethodSet(types.NewPointer(is))
	switch of := is.Underlying().(type) {
	case *types.Interface:
		methods = types.NewMethodSet(is)
		lines[0] = fmt.Sprintf("type %s interface of %d methods", name, of.NumMethods())
		for embedded := range of.EmbeddedTypes() {
			lines = append(lines, fmt.Sprintf("interface %s has %s", name, text(embedded)))
		}
	case *types.Struct:
		lines[0] = "type " + name + " struct"
		for f := range of.Fields() {
			if f.Exported() {
				lines = append(lines, fmt.Sprintf("field %s.%s %s", name, f.Name(), text(f.Type())))
			}
		}
	}
	for m := range methods.Methods() {
		if f := m.Obj(); f.Exported() {
			lines = append(lines, fmt.Sprintf("method %s.%s%s", name, f.Name(), strings.TrimPrefix(text(f.Type()), "func")))
		}
	}
	return lines
}

// Each detail matches its own sentinel and no other, through wrapping too, and says so in
// one line and with a short type; so does each sentinel. The zero values say something, too.
func TestEachErrorIsItsOwnSentinel(t *testing.T) {
	sentinels := map[error]error{ // and its detail
		redlatch.ErrNotAcquired:   &redlatch.NotAcquiredError{},
		redlatch.ErrUnavailable:   &redlatch.UnavailableError{},
		redlatch.ErrLeaseLost:     &redlatch.LeaseLostError{},
		redlatch.ErrInvalidName:   &redlatch.InvalidNameError{},
		redlatch.ErrInvalidOption: &redlatch.InvalidOptionError{},
		redlatch.ErrReplicaAcks:   &redlatch.ReplicaAcksError{},
		redlatch.ErrOtherOwner:    &redlatch.OtherOwnerError{},
		redlatch.ErrNotHeld:       nil, redlatch.ErrClosed: nil, redlatch.ErrUpgrade: nil, redlatch.ErrUnlocked: nil,
	}
	types := map[string]error{}
	kind := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	check := func(err, sentinel error) {
		wrapped := lock.Join(errors.New("first"), err)
		for other := range sentinels {
			if is := errors.Is(err, other); is != (other == sentinel) || errors.Is(wrapped, other) != is { //nolint:errorlint // the very sentinel
				t.Errorf("%T %q matches %q: %v", err, err, other, is)
			}
		}
		if m := err.Error(); m == "" || strings.Contains(m, "\n") {
			t.Errorf("%T: message %q", err, m)
		}
		typed, ok := err.(interface{ ErrorType() string })
		if sentinel == nil {
			return
		}
		if !ok || !kind.MatchString(typed.ErrorType()) {
			t.Fatalf("%T has no type, or a bad one", err)
		}
		if first, taken := types[typed.ErrorType()]; taken && first != sentinel { //nolint:errorlint // the very sentinel
			t.Errorf("%q and %q are both %q", first, err, typed.ErrorType())
		}
		types[typed.ErrorType()] = sentinel
	}
	for sentinel, detail := range sentinels {
		check(sentinel, sentinel)
		if detail != nil {
			check(detail, sentinel)
		}
	}
	for _, err := range []error{&redlatch.ServerError{}, &redlatch.ShutdownError{}, &redlatch.ConnectError{}} {
		check(err, nil)
	}
}

// forImplementers are the names of package lock that programs have no use for: the lock kinds and other types that
// implement Locker need them.
var forImplementers = []string{"AcquireSettings", "Join", "SettingsOf"}

// A program imports one package: what package lock exports for it, the root package has under the same name.
func TestRootHasTheNamesOfPackageLock(t *testing.T) {
	pkgs := public(t)
	all := exported(pkgs["lock"])
	if len(all) < 40 {
		t.Errorf("only %d names were found", len(all))
	}
	for _, obj := range all {
		inside := slices.Contains(forImplementers, obj.Name())
		if found := pkgs[""].Scope().Lookup(obj.Name()) != nil; found == inside {
			t.Errorf("lock.%s is in the root package: %t", obj.Name(), found)
		}
	}
}

// go doc shows nothing of the type behind an alias. So the alias's comment names each field, and each method except those
// that every error and every JSON type has.
func TestAliasesNameWhatTheyHave(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exports.go", nil, parser.ParseComments)
	testbed.Must(t, err)
	member := regexp.MustCompile(`^(?:field|method) \S+\.([A-Z]\w*)`)
	common := []string{"Error", "ErrorType", "Is", "Unwrap", "MarshalJSON", "UnmarshalJSON"}
	scope, named := public(t)[""].Scope(), 0
	ast.Inspect(file, func(n ast.Node) bool {
		alias, is := n.(*ast.TypeSpec)
		if !is {
			return true
		}
		for _, line := range shape(types.Unalias(scope.Lookup(alias.Name.Name).Type()).(*types.Named).Obj()) {
			found := member.FindStringSubmatch(line)
			if found == nil || slices.Contains(common, found[1]) {
				continue
			}
			named++
			if !regexp.MustCompile(`\b` + found[1] + `\b`).MatchString(alias.Doc.Text()) {
				t.Errorf("the comment of %s does not name %s", alias.Name, found[1])
			}
		}
		return true
	})
	if named < 100 {
		t.Errorf("only %d names were found", named)
	}
}

// TestAPI finds an internal type wherever a program can see one, and not where it can't.
func TestInternalTypesAreFound(t *testing.T) {
	inside := typesOf(t, modulePath+"/internal/in", `package in
type T struct{}
type I interface{ hidden() *T }
type H struct{ T *T }
func (H) hidden() *T { return nil }
func (H) Shown() *T { return nil }`, nil)
	for source, bad := range map[string]bool{
		`func F(*in.T) {}`:                                   true,
		`func F() map[string]func([]in.T) {}`:                true,
		`var V chan in.T`:                                    true,
		`type S struct { F in.T }`:                           true,
		`type S struct { in.T }`:                             true,
		`type S struct { f in.T }`:                           false,
		`type S struct { t }; type t = in.T`:                 false,
		`type S struct { h }; type h = in.H`:                 true, // its method is promoted
		`type A = in.T`:                                      true,
		`type F func(s *in.T)`:                               true,
		`type I interface { M() in.T }`:                      true,
		`type I interface { in.I }`:                          true,
		`type I interface { i }; type i = in.I`:              false, // sealed by a private method
		`type S struct{}; func (*S) M(in.T) {}`:              true,
		`type S struct{}; func (*S) m(in.T) {}`:              false,
		`func F() s { return s{} }; type s struct{ F in.T }`: true,
		`func F[X in.I](X) {}`:                               true,
		`func f(in.T) {}; var v in.T`:                        false,
	} {
		lines := api(typesOf(t, modulePath+"/p", "package p; import \""+modulePath+"/internal/in\"; var _ in.T; "+source, inside))
		if got := slices.ContainsFunc(lines, showsInternal); got != bad {
			t.Errorf("%s: %v", source, lines)
		}
	}
}

func typesOf(t *testing.T, name, source string, imported *types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	testbed.Must(t, err)
	conf := types.Config{Importer: one{imported}, Error: func(error) {}} // bodies may lack a return
	pkg, _ := conf.Check(name, fset, []*ast.File{file}, nil)
	return pkg
}

type one struct{ pkg *types.Package }

func (o one) Import(string) (*types.Package, error) { return o.pkg, nil }
