package telemetry

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const schema = "https://opentelemetry.io/schemas/1.43.0"

// receiver is an OTLP receiver as a collector has one (HTTP, protobuf). It keeps the spans, and what each sender, by its
// service.instance.id, sent last of each metric.
type receiver struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	spans   tracetest.SpanStubs          // guarded by mu
	metrics map[string]*metricspb.Metric // guarded by mu; by sender and name
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, metrics: map[string]*metricspb.Metric{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, req *http.Request) {
		var in collectortrace.ExportTraceServiceRequest
		r.serve(w, req, &in, func() { r.keepSpans(&in) }, &collectortrace.ExportTraceServiceResponse{})
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, req *http.Request) {
		var in collectormetrics.ExportMetricsServiceRequest
		r.serve(w, req, &in, func() { r.keepMetrics(&in) }, &collectormetrics.ExportMetricsServiceResponse{})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request, in proto.Message, keep func(), answer proto.Message) {
	data, err := io.ReadAll(req.Body)
	if err == nil {
		err = proto.Unmarshal(data, in)
	}
	if err != nil || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s: %v, content type %q", req.URL, err, req.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	keep()
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-protobuf")
	if data, err = proto.Marshal(answer); err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		r.t.Error(err)
	}
}

func (r *receiver) keepSpans(in *collectortrace.ExportTraceServiceRequest) {
	for _, res := range in.GetResourceSpans() {
		for _, s := range res.GetScopeSpans() {
			if s.GetSchemaUrl() != schema && s.GetScope().GetName() == "github.com/redlatch/redlatch" {
				r.t.Errorf("spans have the schema %q", s.GetSchemaUrl())
			}
			for _, span := range s.GetSpans() {
				r.spans = append(r.spans, stub(span))
			}
		}
	}
}

func (r *receiver) keepMetrics(in *collectormetrics.ExportMetricsServiceRequest) {
	for _, res := range in.GetResourceMetrics() {
		sender := valueOf(attributes(res.GetResource().GetAttributes()), "service.instance.id")
		for _, s := range res.GetScopeMetrics() {
			if s.GetSchemaUrl() != schema {
				r.t.Errorf("metrics have the schema %q", s.GetSchemaUrl())
			}
			for _, m := range s.GetMetrics() {
				r.metrics[sender+" "+m.GetName()] = m
			}
		}
	}
}

// stub is a span as the SDK has it.
func stub(s *tracepb.Span) tracetest.SpanStub {
	out := tracetest.SpanStub{
		Name: s.GetName(), SpanKind: trace.SpanKind(s.GetKind()), Attributes: attributes(s.GetAttributes()),
		SpanContext: spanContext(s.GetTraceId(), s.GetSpanId(), s.GetFlags()),
		Parent:      spanContext(s.GetTraceId(), s.GetParentSpanId(), 0),
		StartTime:   time.Unix(0, int64(s.GetStartTimeUnixNano())), //nolint:gosec // of today
		EndTime:     time.Unix(0, int64(s.GetEndTimeUnixNano())),   //nolint:gosec // of today
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		out.Status = sdktrace.Status{Code: codes.Error, Description: s.GetStatus().GetMessage()}
	}
	for _, l := range s.GetLinks() {
		to := spanContext(l.GetTraceId(), l.GetSpanId(), l.GetFlags())
		out.Links = append(out.Links, sdktrace.Link{SpanContext: to, Attributes: attributes(l.GetAttributes())})
	}
	return out
}

func spanContext(traceID, spanID []byte, flags uint32) trace.SpanContext {
	cfg := trace.SpanContextConfig{
		TraceFlags: trace.TraceFlags(flags & 1), Remote: flags&uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK) != 0,
	}
	copy(cfg.TraceID[:], traceID)
	copy(cfg.SpanID[:], spanID)
	return trace.NewSpanContext(cfg)
}

func attributes(all []*commonpb.KeyValue) (out []attribute.KeyValue) {
	for _, a := range all {
		out = append(out, attribute.String(a.GetKey(), text(a.GetValue())))
	}
	return out
}

// text is the only field of whatever kind of value it is.
func text(v *commonpb.AnyValue) string {
	return fmt.Sprint(reflect.ValueOf(v.GetValue()).Elem().Field(0))
}

// series are the metrics' values by their attributes, in histograms the counts, and what kinds of metrics they are.
func (r *receiver) series() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name, m := range r.metrics {
		kind, temporality := "sum", metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
		add := func(attrs []*commonpb.KeyValue, n any) {
			set := attribute.NewSet(attributes(attrs)...)
			labels := strings.ReplaceAll(set.Encoded(attribute.DefaultEncoder()), "lock.", "")
			out = append(out, fmt.Sprintf("%s{%s}, a %s in %s: %v\n", name, labels, kind, m.GetUnit(), n))
		}
		if h := m.GetHistogram(); h != nil {
			kind, temporality = "histogram", h.GetAggregationTemporality()
			for _, p := range h.GetDataPoints() {
				add(p.GetAttributes(), p.GetCount())
			}
		}
		if s := m.GetSum(); s != nil {
			temporality = s.GetAggregationTemporality()
			if s.GetIsMonotonic() {
				kind = "counter"
			}
			for _, p := range s.GetDataPoints() {
				add(p.GetAttributes(), p.GetAsInt())
			}
		}
		if temporality != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE {
			r.t.Errorf("%s is %v", name, temporality)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// exemplar is the span that a histogram's only exemplar leads to.
func (r *receiver) exemplar(name string) trace.SpanContext {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*metricspb.Exemplar
	for _, p := range r.metrics[name].GetHistogram().GetDataPoints() {
		found = append(found, p.GetExemplars()...)
	}
	if len(found) != 1 {
		r.t.Fatalf("%s has %d exemplars", name, len(found))
	}
	return spanContext(found[0].GetTraceId(), found[0].GetSpanId(), 0)
}
