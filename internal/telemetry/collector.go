package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// collector sends spans as OTLP over HTTP in its JSON encoding. The library's exporter links gRPC with
// it, for which the binary has no room; this encoding is as much a part of the protocol.
type collector struct {
	url    string
	header http.Header
	client *http.Client
	log    *slog.Logger
	silent atomic.Bool // it failed, and was said to
}

func newCollector(endpoint string, log *slog.Logger) (*collector, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil,
			fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT %q: want an http or https URL, such as http://127.0.0.1:4318",
				endpoint)
	}
	c := &collector{url: u.JoinPath("v1/traces").String(), header: http.Header{"Content-Type": {"application/json"}},
		client: &http.Client{Timeout: 10 * time.Second}, log: log}
	for _, pair := range strings.Split(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			if plain, err := url.PathUnescape(strings.TrimSpace(v)); err == nil {
				c.header.Set(strings.TrimSpace(k), plain)
			}
		}
	}
	return c, nil
}

// Shapes of the protocol, as much of it as we say.
type (
	otlpTraces struct {
		ResourceSpans []otlpResource `json:"resourceSpans"`
	}
	otlpResource struct {
		Resource struct {
			Attributes []otlpAttribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []otlpScope `json:"scopeSpans"`
	}
	otlpScope struct {
		Scope struct {
			Name    string `json:"name"`
			Version string `json:"version,omitempty"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID      string          `json:"traceId"` // hex, unlike bytes elsewhere in JSON of protocol buffers
		SpanID       string          `json:"spanId"`
		ParentSpanID string          `json:"parentSpanId,omitempty"`
		Name         string          `json:"name"`
		Kind         int             `json:"kind"`
		Start        string          `json:"startTimeUnixNano"`
		End          string          `json:"endTimeUnixNano"`
		Attributes   []otlpAttribute `json:"attributes"`
		Status       otlpStatus      `json:"status"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"` // 1 ok, 2 error
		Message string `json:"message,omitempty"`
	}
	otlpAttribute struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

func otlpAttributes(list []attribute.KeyValue) []otlpAttribute {
	out := make([]otlpAttribute, 0, len(list))
	for _, kv := range list {
		v := map[string]any{}
		switch kv.Value.Type() {
		case attribute.INT64:
			v["intValue"] = strconv.FormatInt(kv.Value.AsInt64(), 10)
		case attribute.BOOL:
			v["boolValue"] = kv.Value.AsBool()
		case attribute.FLOAT64:
			v["doubleValue"] = kv.Value.AsFloat64()
		default:
			v["stringValue"] = kv.Value.String()
		}
		out = append(out, otlpAttribute{string(kv.Key), v})
	}
	return out
}

// otlp writes spans of one process as the protocol wants them.
func otlp(spans []sdktrace.ReadOnlySpan) otlpTraces {
	var of otlpResource
	of.Resource.Attributes = otlpAttributes(spans[0].Resource().Attributes())
	var in otlpScope
	in.Scope.Name, in.Scope.Version = spans[0].InstrumentationScope().Name, spans[0].InstrumentationScope().Version
	for _, s := range spans {
		o := otlpSpan{TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
			Name: s.Name(), Kind: int(s.SpanKind()),
			Start: strconv.FormatInt(s.StartTime().UnixNano(), 10), End: strconv.FormatInt(s.EndTime().UnixNano(), 10),
			Attributes: otlpAttributes(s.Attributes())}
		if s.Parent().SpanID().IsValid() {
			o.ParentSpanID = s.Parent().SpanID().String()
		}
		switch st := s.Status(); st.Code {
		case codes.Ok:
			o.Status.Code = 1
		case codes.Error:
			o.Status = otlpStatus{2, st.Description}
		}
		in.Spans = append(in.Spans, o)
	}
	of.ScopeSpans = []otlpScope{in}
	return otlpTraces{[]otlpResource{of}}
}

// ExportSpans sends spans once. Spans that the collector does not take are dropped: traces never hold up work. The drop
// is logged once, and again after the collector has worked in between.
func (c *collector) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	err := c.send(ctx, otlp(spans))
	switch {
	case err == nil:
		c.silent.Store(false)
	case !c.silent.Swap(true):
		c.log.Warn("spans are dropped: the collector does not take them", "url", c.url, "error", err)
	}
	return nil
}

func (c *collector) send(ctx context.Context, v otlpTraces) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}

// Shutdown lets go of the connections.
func (c *collector) Shutdown(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}
