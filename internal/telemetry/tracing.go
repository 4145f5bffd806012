package telemetry

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/otel"
)

// tracing is the tracer with its prebuilt options.
type tracing struct {
	source   *source
	opt      Options
	tracer   trace.Tracer
	internal []trace.SpanStartOption
	client   []trace.SpanStartOption
}

func newTracing(tp trace.TracerProvider, src *source, opt Options) *tracing {
	return &tracing{
		source:   src,
		opt:      opt,
		tracer:   tp.Tracer(otel.Scope, trace.WithSchemaURL(semconv.SchemaURL)),
		internal: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)},
		client: []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(semconv.DBSystemNameRedis, semconv.DBOperationName("EVALSHA")),
			trace.WithAttributes(opt.Server...),
		},
	}
}

func (t *tracing) on() bool { return t != nil && t.source.on() }

// common are the attributes that every span carries.
func (t *tracing) common(l observe.Lock) []attribute.KeyValue {
	name := l.Name
	if t.opt.LockName != nil {
		name = t.opt.LockName(name)
	}
	return []attribute.KeyValue{
		attribute.String("lock.name", clean(name)), attribute.String("lock.type", l.Type),
		attribute.String("lock.client.name", t.opt.Client),
	}
}

// maxValue bounds an attribute: a lock's name may be of any length.
const maxValue = 256

// clean makes text fit for an attribute. Names may be binary, and one that is
// not UTF-8 makes an exporter drop the whole batch that it is in.
func clean(text string) string {
	if len(text) > maxValue {
		text = text[:maxValue] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// end ends a span with the status of err.
func (t *tracing) end(span trace.Span, err error, how ...trace.SpanEndOption) {
	if err != nil {
		span.SetStatus(codes.Error, t.text(err))
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
	}
	span.End(how...)
}

// endCommand ends the span of a script run.
func (t *tracing) endCommand(span trace.Span, script string, err error) {
	span.SetAttributes(semconv.DBStoredProcedureName(script))
	if code := statusCode(err); code != "" {
		span.SetAttributes(semconv.DBResponseStatusCode(code))
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		span.SetAttributes(semconv.NetworkPeerAddress(op.Addr.String()))
	}
	t.end(span, err)
}

// errorType is the error.type attribute of locks' spans and metrics: one of a
// small number, whatever the error says.
func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return typed.ErrorType()
	}
	if code := statusCode(err); code != "" {
		return strings.ToLower(code)
	}
	return "unavailable" // no answer: whatever broke the connection
}

// statusCode is the first word of a server's error, its code.
func statusCode(err error) string {
	server, ok := errors.AsType[interface {
		error
		IsNil() bool // of rueidis' RedisError
	}](err)
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(server.Error(), " ")
	for _, c := range []byte(word) {
		if (c < 'A' || c > 'Z') && c != '_' || len(word) > 24 {
			return "OTHER"
		}
	}
	return word
}

// Server is an address's host and port as attributes.
func Server(address string) []attribute.KeyValue {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(address)}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(host)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(n)}
}
