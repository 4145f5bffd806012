package telemetry

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	scope  = "github.com/redlatch/redlatch"
	schema = "https://opentelemetry.io/schemas/1.43.0"
)

// receiver is an OTLP receiver as a collector has one (HTTP, protobuf). It keeps
// what redlatch's scope sends, by the service.instance.id of the sender.
type receiver struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	spans   map[string][]*tracepb.Span              // guarded by mu
	metrics map[string]map[string]*metricspb.Metric // guarded by mu; the latest, by name
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, spans: map[string][]*tracepb.Span{}, metrics: map[string]map[string]*metricspb.Metric{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, req *http.Request) {
		var in collectortrace.ExportTraceServiceRequest
		if r.decode(w, req, &in) {
			r.keepSpans(&in)
			r.reply(w, &collectortrace.ExportTraceServiceResponse{})
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, req *http.Request) {
		var in collectormetrics.ExportMetricsServiceRequest
		if r.decode(w, req, &in) {
			r.keepMetrics(&in)
			r.reply(w, &collectormetrics.ExportMetricsServiceResponse{})
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) decode(w http.ResponseWriter, req *http.Request, into proto.Message) bool {
	body := io.Reader(req.Body)
	var err error
	if req.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(req.Body)
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(body)
	}
	if err == nil {
		err = proto.Unmarshal(data, into)
	}
	if err != nil || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s: %v, content type %q", req.URL, err, req.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusBadRequest)
		return false
	}
	return true
}

func (r *receiver) reply(w http.ResponseWriter, m proto.Message) {
	data, err := proto.Marshal(m)
	if err == nil {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, err = w.Write(data)
	}
	if err != nil {
		r.t.Error(err)
	}
}

func (r *receiver) keepSpans(in *collectortrace.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range in.GetResourceSpans() {
		instance := value(res.GetResource().GetAttributes(), "service.instance.id")
		for _, s := range res.GetScopeSpans() {
			if s.GetScope().GetName() != scope {
				continue
			}
			if s.GetSchemaUrl() != schema {
				r.t.Errorf("spans have the schema %q", s.GetSchemaUrl())
			}
			r.spans[instance] = append(r.spans[instance], s.GetSpans()...)
		}
	}
}

func (r *receiver) keepMetrics(in *collectormetrics.ExportMetricsServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range in.GetResourceMetrics() {
		instance := value(res.GetResource().GetAttributes(), "service.instance.id")
		for _, s := range res.GetScopeMetrics() {
			if s.GetScope().GetName() != scope {
				continue
			}
			if s.GetSchemaUrl() != schema {
				r.t.Errorf("metrics have the schema %q", s.GetSchemaUrl())
			}
			if r.metrics[instance] == nil {
				r.metrics[instance] = map[string]*metricspb.Metric{}
			}
			for _, m := range s.GetMetrics() {
				r.metrics[instance][m.GetName()] = m
			}
		}
	}
}

// one is the only span of a name that an instance has sent.
func (r *receiver) one(instance, name string) *tracepb.Span {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*tracepb.Span
	var names []string
	for _, s := range r.spans[instance] {
		names = append(names, s.GetName())
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%s sent %d spans %s, want one; all: %v", instance, len(found), name, names)
	}
	return found[0]
}

// below are an instance's children of a span by name, and the script where there is
// one, in their order.
func (r *receiver) below(instance string, parent *tracepb.Span) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var children []*tracepb.Span
	for _, s := range r.spans[instance] {
		if string(s.GetParentSpanId()) == string(parent.GetSpanId()) && string(s.GetTraceId()) == string(parent.GetTraceId()) {
			children = append(children, s)
		}
	}
	slices.SortStableFunc(children, func(a, b *tracepb.Span) int {
		return int(a.GetStartTimeUnixNano() - b.GetStartTimeUnixNano()) //nolint:gosec // spans of one test
	})
	var out []string
	for _, s := range children {
		name := s.GetName()
		if script := value(s.GetAttributes(), "db.stored_procedure.name"); script != "" {
			name += " " + script
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// points are a metric's values by its attributes, in histograms the counts, and what
// kind of metric it is.
func (r *receiver) points(instance, name string) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.metrics[instance][name]
	var out []string
	add := func(attrs []*commonpb.KeyValue, n any) {
		var labels []string
		for _, a := range attrs {
			labels = append(labels, strings.TrimPrefix(a.GetKey(), "lock.")+"="+text(a.GetValue()))
		}
		slices.Sort(labels)
		out = append(out, fmt.Sprintf("{%s} %v", strings.Join(labels, ","), n))
	}
	kind := "nothing"
	cumulative := metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch data := m.GetData().(type) {
	case *metricspb.Metric_Sum:
		kind = "sum"
		if data.Sum.GetIsMonotonic() {
			kind = "counter"
		}
		if data.Sum.GetAggregationTemporality() != cumulative {
			kind += "?"
		}
		for _, p := range data.Sum.GetDataPoints() {
			add(p.GetAttributes(), p.GetAsInt())
		}
	case *metricspb.Metric_Histogram:
		kind = "histogram"
		if data.Histogram.GetAggregationTemporality() != cumulative {
			kind += "?"
		}
		for _, p := range data.Histogram.GetDataPoints() {
			add(p.GetAttributes(), p.GetCount())
		}
	}
	slices.Sort(out)
	return kind + " " + m.GetUnit() + " " + strings.Join(out, " ")
}

func value(attrs []*commonpb.KeyValue, key string) string {
	for _, a := range attrs {
		if a.GetKey() == key {
			return text(a.GetValue())
		}
	}
	return ""
}

func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	}
	return ""
}

func id(b []byte) string { return hex.EncodeToString(b) }
