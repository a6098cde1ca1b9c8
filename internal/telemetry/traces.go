package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Traces makes spans of requests and of dispatches, and sends them to a collector. A transaction stores the
// traceparent of the request that posted it, so that the dispatch, in whatever process and however much
// later, is a part of the same trace. A nil *Traces makes none, and a nil *Span takes everything.
type Traces struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// Span is one request or dispatch.
type Span struct{ span trace.Span }

// w3c reads and writes traceparent. Baggage and tracestate are not kept: they are others' words.
var w3c = propagation.TraceContext{}

// NewTraces sends to the collector at endpoint (OTLP over HTTP, /v1/traces is added). Which traces are
// sampled is said by OTEL_TRACES_SAMPLER, further attributes of the process by OTEL_RESOURCE_ATTRIBUTES.
func NewTraces(endpoint, version, node string, log *slog.Logger) (*Traces, error) {
	out, err := newCollector(endpoint, log)
	if err != nil {
		return nil, err
	}
	own := resource.NewSchemaless(attribute.String("service.name", "postern"), attribute.String("service.version", version), attribute.String("service.instance.id", node))
	if env, err := resource.New(context.Background(), resource.WithFromEnv()); err == nil {
		if merged, err := resource.Merge(own, env); err == nil {
			own = merged
		}
	}
	t := &Traces{provider: sdktrace.NewTracerProvider(sdktrace.WithResource(own), sdktrace.WithBatcher(out, sdktrace.WithBatchTimeout(2*time.Second)))}
	t.tracer = t.provider.Tracer("github.com/postern-dev/postern", trace.WithInstrumentationVersion(version))
	return t, nil
}

// Close sends what is left, as long as ctx lets it.
func (t *Traces) Close(ctx context.Context) {
	if t != nil {
		_ = t.provider.Shutdown(ctx) // spans that it could not send are logged where they were sent
	}
}

// Request begins the span of a request, a part of the client's trace if it names one.
func (t *Traces) Request(r *http.Request) (*http.Request, *Span) {
	if t == nil {
		return r, nil
	}
	ctx, span := t.tracer.Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), r.Method, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", r.Method)))
	return r.WithContext(ctx), &Span{span}
}

// Answered ends the span of a request.
func (s *Span) Answered(route string, status int) {
	if s == nil {
		return
	}
	s.span.SetName(route)
	s.span.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
	if status >= 500 {
		s.span.SetStatus(codes.Error, http.StatusText(status))
	}
	s.span.End()
}

// Dispatch begins the span of a dispatch, in the trace in which its transaction was posted.
func (t *Traces) Dispatch(traceparent, typ, tx, queue, sender string, attempt int) *Span {
	if t == nil {
		return nil
	}
	posted := w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	_, span := t.tracer.Start(posted, "dispatch "+typ, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("postern.type", typ), attribute.String("postern.tx", tx), attribute.String("postern.queue", queue),
		attribute.String("postern.sender", sender), attribute.Int("postern.attempt", attempt)))
	return &Span{span}
}

// Done ends the span of a dispatch with what was wrong with it, "" for nothing.
func (s *Span) Done(class, message string) {
	if s == nil {
		return
	}
	if class != "" {
		s.span.SetAttributes(attribute.String("postern.class", class))
		s.span.SetStatus(codes.Error, message)
	}
	s.span.End()
}

// Traceparent is what the next one is told, so that it is a part of the trace; "" for no span.
func (s *Span) Traceparent() string {
	if s == nil {
		return ""
	}
	return traceparent(trace.ContextWithSpan(context.Background(), s.span))
}

// Traceparent is that of the request which ctx belongs to, "" where no spans are made.
func Traceparent(ctx context.Context) string {
	if !trace.SpanFromContext(ctx).SpanContext().IsValid() {
		return ""
	}
	return traceparent(ctx)
}

func traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	w3c.Inject(ctx, c)
	return c["traceparent"]
}
