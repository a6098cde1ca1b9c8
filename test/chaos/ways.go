package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// ways are the proxies between clients and the processes of the API, and between these and their worker.
type ways struct {
	worker *proxy
	apis   []*proxy
	direct []string // the addresses of the API behind them
}

// wayTo puts a proxy before an address, and returns its URL.
func wayTo(address string) (*proxy, string, error) {
	x, err := newProxy(strings.TrimPrefix(address, "http://"))
	if err != nil {
		return nil, "", err
	}
	return x, fmt.Sprintf("http://127.0.0.1:%d", x.port()), nil
}

// toWorker is the URL by which processes call the worker.
func (w *world) toWorker() string { return fmt.Sprintf("http://127.0.0.1:%d", w.ways.worker.port()) }

func (w *ways) heal() {
	if w.worker != nil {
		w.worker.heal()
	}
	for _, x := range w.apis {
		x.heal()
	}
}

// ofWorker and ofClients choose the ways that a fault hits.
func ofWorker(w *world, _ *rand.Rand) *proxy { return w.ways.worker }

func ofClients(w *world, r *rand.Rand) *proxy { return w.ways.apis[r.IntN(len(w.ways.apis))] }

// wayCut resets all connections of a way, some times.
func wayCut(which func(*world, *rand.Rand) *proxy) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, r *rand.Rand) {
		x, n := which(w, r), 0
		for range 10 {
			n += x.cut()
			wait(ctx, time.Duration(50+r.Int64N(200))*time.Millisecond)
		}
		if n == 0 {
			w.missed("there was no connection")
		}
	}
}

// wayDrops loses requests or answers of a way for some seconds. Those are lost for good, and their connections reset.
func wayDrops(which func(*world, *rand.Rand) *proxy, requests, answers bool) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, r *rand.Rand) {
		x := which(w, r)
		before := x.touchedSoFar()
		x.drop(requests, answers)
		wait(ctx, time.Duration(500+r.Int64N(2000))*time.Millisecond)
		x.heal()
		if x.touchedSoFar() == before {
			w.missed("nothing was on its way")
		}
	}
}
