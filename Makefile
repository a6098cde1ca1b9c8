# Everything that is done with this repository more than once. `make` alone lists it.

SHELL := bash
.SHELLFLAGS := -o pipefail -c

GO ?= go
# make test RACE=-race: with the race detector, as CI does. It needs a C compiler, and half as long again.
RACE ?=
TESTFLAGS ?=

.PHONY: help
help: ## this list
	@grep -hE '^[a-z/-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "make %-14s %s\n", $$1, $$2}'

# Not by `go run`, which makes a failure of Ctrl-C. On a terminal it is a job of its own: Ctrl-C is for it alone, and
# make, which would die of it, ends well.
.PHONY: demo
demo: ## run everything, post the samples, watch them go out (needs nothing but Go)
	$(GO) build -ldflags="-s -w" -o bin/postern ./cmd/postern
	@[ ! -t 0 ] || set -m; bin/postern demo $(ARGS); exit $$?

.PHONY: test
test: ## every test, against a real PostgreSQL that is found or started
	@# Two packages at a time, whose tests run two at a time on two processors: with more of them times of seconds pass
	@# on a machine that is busy, and nothing is done sooner. The longest go first.
	@# Without what debuggers need, test programs are linked in a third of the time; vet is a step of its own (verify).
	@# The rules of the house read all files in one goroutine, and each script of the sandbox begins as a process of the
	@# test's own program: with the race detector they would take two and ten minutes.
	$(GO) test $(TESTFLAGS) ./internal ./internal/sandbox
	$(GO) run ./internal/pgtest/cmd/with-postgres -- $(GO) test $(RACE) $(TESTFLAGS) -p 2 \
		-vet=off -ldflags=-w -timeout 60m -json ./internal/work ./internal/pg ./internal/chaos \
		./cmd/postern ./internal/app \
		$$($(GO) list ./... | grep -v '/internal$$\|/internal/sandbox$$') | $(GO) run ./internal/pgtest/cmd/report
	cd test && $(GO) test $(TESTFLAGS) ./... # a module of its own: the judges are somebody else's code
	cd test/kube && $(GO) test $(TESTFLAGS) ./... # so are the types of Kubernetes, which are large
	cd test/chaos && $(GO) test $(TESTFLAGS) ./... # and the checker, which shares no code with what it checks

.PHONY: test-ui
test-ui: ## the dashboard in the Chromium of the system, with axe; skips with one line where there is none (UPDATE=1: golden texts, pictures)
	$(GO) build -ldflags="-s -w" -o bin/postern ./cmd/postern
	cd test/ui && npm ci --no-audit --no-fund --silent && node test.mjs

.PHONY: test-kills
test-kills: ## a leader and its listener that die 1,000 times at random points each, nodes, workers and ledger in mid-batch, and 50 runners killed and frozen, with their times (half an hour)
	$(GO) run ./internal/pgtest/cmd/with-postgres -- env POSTERN_LEADER_KILLS=1000 POSTERN_CHAOS=10 POSTERN_RUNNER_KILLS=50 $(GO) test ./internal/work ./internal/chaos \
		-run 'TestEachProcessOfADomain|TestAListenerThatDiesAnywhere|TestKillTheLeader|TestBatchesSurviveKills|TestAKilledRunner|TestARunnerThatWakesUp' -p 1 -count=1 -timeout 120m -v

.PHONY: chaos
chaos: ## break everything for a minute, then check every promise by logs and rows (ARGS="-seconds 60 -seed 1 -faults terminate,crash")
	$(GO) build -o bin/postern ./cmd/postern
	cd test/chaos && $(GO) build -o ../../bin/chaos .
	bin/chaos $(ARGS)

# One after the other, since each takes all processors. What is found is kept below testdata/fuzz of its package: mend
# it, and commit that file, which every test run tries from then on. KEEP=16 adds to the corpora that are committed.
FUZZTIME ?= 10s
KEEP ?= 0
.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s), one after the other, against a real PostgreSQL where one needs it (TARGETS=FuzzParse for some)
	$(GO) run ./internal/pgtest/cmd/with-postgres -- $(GO) run ./internal/pgtest/cmd/fuzz -time $(FUZZTIME) -keep $(KEEP) $(TARGETS)

# A schedule is drawn by its number. What breaks a promise is printed with the command that plays it again and tells it.
.PHONY: sim
sim: ## 100,000 schedules of domains: wires, nodes, stores and a ledger that fail (ARGS="-seed 7" tells one, "-runs 500 -kind late")
	$(GO) test ./internal/coord/coordtest -run TestSchedules -count=1 -timeout 180m -v -args $(or $(ARGS),-runs 100000)

.PHONY: chaos-twins
chaos-twins: ## programs with one planted fault each, and whether the harness finds it (ARGS="-twins short" for some); writes test/chaos/twins.md
	$(GO) build -tags twin -o bin/postern-twin ./cmd/postern
	cd test/chaos && $(GO) build -o ../../bin/chaos .
	bin/chaos -bin bin/postern-twin -table test/chaos/twins.md $(or $(ARGS),-twins all)

.PHONY: test-large
test-large: ## the reports at ten million transactions: writes sql/report/large.md (some 12 GB and a quarter of an hour)
	$(GO) run ./internal/pgtest/cmd/with-postgres -- env POSTERN_LARGE=10000000 $(GO) test ./internal/pg -run TestReportsUseIndexes -count=1 -timeout 60m -v

.PHONY: contract
contract: ## render api/openapi.yaml, docs/api.md, errors.md, settings.md and metrics.md, api/client, and what may not go (surface.txt)
	$(GO) test ./internal/httpapi -run 'TestTheCommittedContract|TestNothingOfTheSurfaceIsGone' -count=1 -update
	$(GO) test ./internal/telemetry -run 'TestTheNamesAreGolden' -count=1 -update
	$(GO) tool -modfile=internal/tools/go.mod oapi-codegen -config internal/tools/client/config.yaml -o api/client/client.gen.go api/openapi.yaml

.PHONY: generate
generate: contract ## render what is derived: machine pages, the contract, the golden files of the command line
	$(GO) run ./cmd/postern machines --write
	$(GO) test ./cmd/postern -run Golden -update

.PHONY: verify
verify: ## that what is derived is up to date, and that modules are what go.sum says
	$(GO) mod verify
	$(GO) vet ./...
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these'; exit 1; }
	$(MAKE) generate
	git diff --exit-code -- api docs internal cmd testdata

.PHONY: lint
lint: lint/contract ## the contracts, and the code by golangci-lint, if it is installed
	@command -v golangci-lint >/dev/null || { echo 'golangci-lint is not installed: https://golangci-lint.run/docs/welcome/install'; exit 1; }
	golangci-lint run

.PHONY: lint/contract
lint/contract: ## api/openapi.yaml and api/worker.yaml by Spectral, from npm as its lockfile says
	cd internal/tools && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cd internal/tools && node_modules/.bin/spectral lint ../../api/openapi.yaml ../../api/worker.yaml --ruleset spectral.yaml --fail-severity warn

.PHONY: bench
bench: ## load, every run checked: ARGS="fifo-1000x10 --runs 9", or --list
	$(GO) run ./cmd/postern bench $(ARGS)

.PHONY: bench-peers
bench-peers: ## ours beside River, graphile-worker and pg-boss, in turns (hours; ARGS="--runs 3 ..." for less)
	cd bench/peers && $(GO) run . $(ARGS)

.PHONY: bench-check
bench-check: ## a few short scenarios against bench/baseline.json, as parts of the commits that this machine makes
	$(GO) run ./cmd/postern bench check $(ARGS)

.PHONY: build
build: ## the static binary, bin/postern
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/postern ./cmd/postern

.PHONY: sizes
sizes: ## how big files feel: median, 90th percentile and the largest
	@git ls-files '*.go' | grep -v -e _test.go -e dbsqlc/ -e .gen.go | xargs wc -c | grep -v total | sort -n | \
		awk '{s[NR]=$$1; f[NR]=$$2} END {printf "%d files, median %d, p90 %d, largest %d (%s)\n", NR, s[int((NR+1)/2)], s[int(NR*0.9)], s[NR], f[NR]}'
