package redlatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"iter"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/multilock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rwlock"
)

// The public API has these names and shapes; programs that use it compile with every
// version. A line that no longer compiles is a breaking change.
var (
	_ func(redlatch.Config) (*redlatch.Client, error)                                                         = redlatch.New
	_ func(string, ...redlatch.ConfigOption) (*redlatch.Client, error)                                        = redlatch.Open
	_ func(rueidis.Client, redlatch.Config) (*redlatch.Client, error)                                         = redlatch.NewWithClient
	_ func(...redlatch.Member) *multilock.MultiLock                                                           = redlatch.MultiLock
	_ func(...redlatch.Member) *multilock.MultiLock                                                           = redlatch.QuorumLock
	_ func(context.Context, string) context.Context                                                           = redlatch.WithOwner
	_ func(context.Context) context.Context                                                                   = redlatch.NewOwner
	_ func(time.Duration) redlatch.AcquireOption                                                              = redlatch.WithLease
	_ func(context.Context, redlatch.Locker, func(context.Context) error, ...redlatch.AcquireOption) error    = redlatch.Do
	_ func(context.Context, redlatch.Locker, time.Duration, time.Duration, func(context.Context) error) error = redlatch.TryDo
	_ func() redlatch.Option                                                                                  = redlatch.Fenced
	_ func() redlatch.Option                                                                                  = redlatch.PreferReaders
	_ func(string) redlatch.ForceOption                                                                       = redlatch.IfOwner
	_ func(*redlatch.Client, string, ...redlatch.Option) *rlock.RLock                                         = (*redlatch.Client).RLock
	_ func(*redlatch.Client, string, ...redlatch.Option) *fairlock.FairLock                                   = (*redlatch.Client).FairLock
	_ func(*redlatch.Client, string, ...redlatch.Option) *rwlock.ReadWriteLock                                = (*redlatch.Client).ReadWriteLock
	_ func(*rwlock.ReadWriteLock) *rwlock.ReadLock                                                            = (*rwlock.ReadWriteLock).ReadLock
	_ func(*rwlock.ReadWriteLock) *rwlock.WriteLock                                                           = (*rwlock.ReadWriteLock).WriteLock
	_ func(*redlatch.Client, context.Context) error                                                           = (*redlatch.Client).Shutdown
	_ func(*redlatch.Client)                                                                                  = (*redlatch.Client).Close
	_ func(*redlatch.Client) []redlatch.HeldLock                                                              = (*redlatch.Client).Held
	_ func(*redlatch.Client, string) *redlatch.Once                                                           = (*redlatch.Client).Once

	_ func(*redlatch.Client, context.Context, string) (redlatch.Inspection, error)                    = (*redlatch.Client).Inspect
	_ func(*redlatch.Client, context.Context, string) iter.Seq2[redlatch.Inspection, error]           = (*redlatch.Client).Locks
	_ func(*redlatch.Client, context.Context, string, ...redlatch.ForceOption) (bool, error)          = (*redlatch.Client).ForceUnlock
	_ func(*redlatch.Once, context.Context, time.Duration, func(context.Context) error) (bool, error) = (*redlatch.Once).Do
)

// kindOfLock is what every kind has.
type kindOfLock interface {
	redlatch.Locker
	Name() string
	Do(ctx context.Context, fn func(ctx context.Context) error, opts ...redlatch.AcquireOption) error
	TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

var (
	_ kindOfLock = (*rlock.RLock)(nil)
	_ kindOfLock = (*fairlock.FairLock)(nil)
	_ kindOfLock = (*rwlock.ReadLock)(nil)
	_ kindOfLock = (*rwlock.WriteLock)(nil)
	_ kindOfLock = (*multilock.MultiLock)(nil)
)

// ownHold and ownLock are a user's types: they have what Hold and Locker ask for and nothing
// else, and would not compile if more were asked for.
type ownHold struct{}

func (ownHold) Name() string                                { return "own" }
func (ownHold) Context() context.Context                    { return context.Background() }
func (ownHold) Unlock(context.Context) error                { return nil }
func (ownHold) Extend(context.Context, time.Duration) error { return nil }
func (ownHold) Token() uint64                               { return 0 }
func (ownHold) ValidUntil() time.Time                       { return time.Time{} }
func (ownHold) Owner() redlatch.OwnerID                     { return redlatch.OwnerID{} }

type ownLock struct{}

func (ownLock) Lock(context.Context, ...redlatch.AcquireOption) (redlatch.Hold, error) {
	return ownHold{}, nil
}

func (ownLock) TryLock(context.Context, time.Duration, time.Duration) (redlatch.Hold, error) {
	return ownHold{}, nil
}

var (
	_ redlatch.Hold   = ownHold{}
	_ redlatch.Locker = ownLock{}
	_                 = redlatch.Config{
		Redis: rueidis.ClientOption{}, ClientBuilder: rueidis.NewClient, Name: "", LeaseTime: time.Second,
		Prefix: "", NameMapper: strings.ToLower, FenceTTL: time.Hour, ReplicaAcks: 0, ReplicaAckTimeout: time.Second,
		UnlockTimeout: time.Second, TracerProvider: trace.TracerProvider(nil), MeterProvider: metric.MeterProvider(nil),
		Logger: (*slog.Logger)(nil), Telemetry: redlatch.Telemetry{},
	}
)

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
		if !ok || !kind.MatchString(typed.ErrorType()) {
			t.Errorf("%T has no type, or a bad one", err)
			return
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
		if m := err.Error(); m == "" || strings.Contains(m, "\n") {
			t.Errorf("%T: message %q", err, m)
		}
		for sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				t.Errorf("%T matches %q", err, sentinel)
			}
		}
	}
}

// forImplementers are the names of package lock that programs have no use for: the lock kinds and other types that
// implement Locker need them.
var forImplementers = []string{"AcquireSettings", "Join", "SettingsOf"}

// A program imports one package: what package lock exports for it, the root package has under the same name.
func TestRootHasTheNamesOfPackageLock(t *testing.T) {
	root := exported(t, ".")
	all := exported(t, "lock")
	if len(all) < 40 {
		t.Errorf("only %d names were found", len(all))
	}
	for _, name := range all {
		if !slices.Contains(root, name) && !slices.Contains(forImplementers, name) {
			t.Errorf("lock.%s is missing in the root package", name)
		}
	}
	for _, name := range forImplementers {
		if !slices.Contains(all, name) {
			t.Errorf("package lock has no %s", name)
		}
	}
}

// exported lists the exported names of the package in dir, without methods and fields.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			names = append(names, declared(decl)...)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !token.IsExported(name) })
}

// declared are the names that a declaration of a package makes.
func declared(decl ast.Decl) []string {
	if f, ok := decl.(*ast.FuncDecl); ok {
		if f.Recv != nil {
			return nil
		}
		return []string{f.Name.Name}
	}
	var names []string
	for _, spec := range decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			names = append(names, spec.Name.Name)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// publicPackages are what a program may import, by folder.
var publicPackages = []string{"", "lock", "rlock", "fairlock", "rwlock", "multilock", "otel", "redlatchtest"}

// No signature, exported field or constant that a program can reach has a type of an internal package.
func TestPublicSignaturesHaveNoInternalType(t *testing.T) {
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
	walked := &exports{seen: map[types.Type]bool{}}
	for _, dir := range publicPackages {
		pkg, err := imports.Import(path.Join(modulePath, dir))
		if err != nil {
			t.Fatal(err)
		}
		walked.pkg(pkg)
	}
	for _, bad := range walked.internal {
		t.Error(bad)
	}
	if walked.objects < 300 {
		t.Errorf("only %d objects were looked at", walked.objects)
	}
}

// The walk above finds an internal type wherever a program can see one, and not where it can't.
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
		walked := &exports{seen: map[types.Type]bool{}}
		walked.pkg(typesOf(t, modulePath+"/p", "package p; import \""+modulePath+"/internal/in\"; var _ in.T; "+source, inside))
		if got := len(walked.internal) > 0; got != bad {
			t.Errorf("%s: found %v", source, walked.internal)
		}
	}
}

func typesOf(t *testing.T, name, source string, imported *types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: one{imported}, Error: func(error) {}} // bodies may lack a return
	pkg, _ := conf.Check(name, fset, []*ast.File{file}, nil)
	return pkg
}

type one struct{ pkg *types.Package }

func (o one) Import(string) (*types.Package, error) { return o.pkg, nil }

// exports walks what programs can see of packages.
type exports struct {
	seen     map[types.Type]bool
	objects  int
	internal []string // what has an internal type
}

func (e *exports) pkg(pkg *types.Package) {
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		if obj := scope.Lookup(name); obj.Exported() {
			e.object(pkg.Path()+"."+name, obj)
		}
	}
}

func (e *exports) object(where string, obj types.Object) {
	e.objects++
	if named, ok := obj.Type().(*types.Named); ok && internal(named.Obj()) {
		e.internal = append(e.internal, fmt.Sprintf("%s is %s", where, named))
		return
	}
	e.typ(where, obj.Type())
}

func internal(name *types.TypeName) bool {
	return name.Pkg() != nil && strings.HasPrefix(name.Pkg().Path(), modulePath+"/internal/")
}

// typ looks into a type that a program sees at where.
func (e *exports) typ(where string, t types.Type) {
	if e.seen[t] {
		return
	}
	e.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		e.name(where, t.Obj())
		e.typ(where, types.Unalias(t))
	case *types.Named:
		e.name(where, t.Obj())
		for arg := range t.TypeArgs().Types() {
			e.typ(where, arg)
		}
		if pkg := t.Obj().Pkg(); pkg != nil && strings.HasPrefix(pkg.Path(), modulePath) && !internal(t.Obj()) {
			e.methods(where, types.NewPointer(t))
			e.typ(where, t.Underlying())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				e.typ(where+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				e.typ(where+"."+m.Name(), m.Type())
			}
		}
		for embedded := range t.EmbeddedTypes() {
			if alias, ok := embedded.(*types.Alias); ok && !alias.Obj().Exported() {
				e.methods(where, alias)
				continue
			}
			e.typ(where, embedded)
		}
	case *types.Signature:
		for p := range t.TypeParams().TypeParams() {
			e.typ(where, p.Constraint())
		}
		e.typ(where, t.Params())
		e.typ(where, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			e.typ(where, v.Type())
		}
	case *types.Map:
		e.typ(where, t.Key())
		e.typ(where, t.Elem())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		e.typ(where, t.Elem())
	}
}

func (e *exports) name(where string, name *types.TypeName) {
	if internal(name) {
		e.internal = append(e.internal, fmt.Sprintf("%s has %s", where, name.Type()))
	}
}

// methods looks at the exported methods of a type, promoted ones included.
func (e *exports) methods(where string, t types.Type) {
	for m := range types.NewMethodSet(t).Methods() {
		if m.Obj().Exported() {
			e.objects++
			e.typ(where+"."+m.Obj().Name(), m.Type())
		}
	}
}
