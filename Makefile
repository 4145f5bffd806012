# make help lists the targets by the group behind ##. Everything that a target needs and that is not
# Go, make or git is set up by the target itself, under .cache.

SHELL := /bin/sh
export PATH := $(CURDIR)/.cache/bin:$(PATH)

# Flags for go test, e.g. make test TEST_FLAGS='-run TestReentry -v'.
TEST_FLAGS ?=
export TEST_FLAGS

.DEFAULT_GOAL := help

.PHONY: help
help: ##test List the targets.
	@for group in 'try:Try it' 'test:Test' 'faults:Search for faults' 'measure:Measure' 'tools:Tools and pictures'; do \
	  echo "$${group#*:}:"; \
	  sed -n "s/^\([a-z-]*\):.*##$${group%%:*} \(.*\)/  make \1|\2/p" $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-17s %s\n", $$1, $$2 }'; \
	done

.PHONY: test
test: ##test Run all tests with the race detector, on real servers.
	@scripts/ensure-redis.sh
	@[ "$$REDLATCH_INTEROP" != require ] || scripts/ensure-java.sh
	@scripts/ensure-prometheus.sh || [ "$$REDLATCH_PROMETHEUS" != require ]
	@scripts/ensure-chromium.sh || [ "$$REDLATCH_CHROMIUM" != require ]
	@scripts/ensure-servers.sh
	@scripts/test.sh

.PHONY: quick
quick: ##test Run the unit tests and the tables of promises, on the server on PATH or an imitation; two minutes.
	@scripts/quick.sh

.PHONY: lint
lint: ##test Check the code: gofmt, go vet, builds for three systems, linters.
	@scripts/lint.sh

# Flags for the demo, e.g. make demo DEMO_FLAGS=-kill. REDIS=install installs a redis-server where none is on PATH
# (Debian, Ubuntu); without it the demo takes a slower server of its own.
DEMO_FLAGS ?=
REDIS ?=
export REDIS

.PHONY: demo
demo: ##try Sell out a flash sale with and without locks and compare; takes a minute.
	@scripts/ensure-redis.sh --optional
	@go run ./examples/flashsale $(DEMO_FLAGS)

# Flags for the comparison, and what the tables have a column for, e.g. make bench
# BENCH_FLAGS='-only handover -rounds 9'.
BENCH_FLAGS ?=
BENCH_BY ?= /lock
BENCH_OUT := $(CURDIR)/.cache/bench.txt
BENCHSTAT := go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

.PHONY: bench
bench: ##measure Compare with other libraries, on a private server; takes an hour.
	@scripts/ensure-redis.sh
	@mkdir -p .cache
	@go run ./bench $(BENCH_PEERS) $(BENCH_FLAGS) >$(BENCH_OUT); status=$$?; $(MAKE) -s benchstat; exit $$status

.PHONY: bench-all
bench-all: ##measure The same with Redisson, etcd, ZooKeeper and MariaDB (fetches them into .cache).
	@scripts/ensure-peers.sh || true
	@$(MAKE) -s bench BENCH_PEERS='-peers all'

.PHONY: benchstat
benchstat: ##measure Show the tables of the last comparison once more.
	@$(BENCHSTAT) -col '$(BENCH_BY)' $(BENCH_OUT)

# How long the random test of Java and Go processes lasts, e.g. make interop INTEROP_SOAK=5m; 15s in make test.
INTEROP_SOAK ?= 60s

.PHONY: interop
interop: ##faults Run the tests with the real Redisson (needs a JDK and Maven, installs them); see INTEROP_SOAK.
	@scripts/ensure-redis.sh
	@scripts/ensure-java.sh
	cd integration && REDLATCH_INTEROP=require REDLATCH_INTEROP_SOAK=$(INTEROP_SOAK) go test -race -count=1 -timeout 20m $(TEST_FLAGS) ./redisson/...

# Which servers and packages, e.g. make matrix SERVERS=valkey-9.1.2 PACKAGES='. ./fair'.
export SERVERS PACKAGES

.PHONY: matrix
matrix: ##faults Run the integration tests on every server version; about two hours.
	@scripts/ensure-redis.sh
	@scripts/ensure-servers.sh
	@scripts/matrix.sh
# How long, from which seed (a random one if unset), and only one profile of
# integration/faults, e.g. make faults FOR=30m SEED=7 PROFILE=calm. WIDE=1 spreads the work over
# many locks, and RACE= leaves the race detector out: both for more operations.
FOR ?= 10m
SEED ?=
PROFILE ?=
WIDE ?=
RACE ?= -race

.PHONY: faults
faults: ##faults Combine faults at random and check what the locks did; see FOR, SEED, PROFILE, WIDE.
	@scripts/ensure-redis.sh
	cd integration && REDLATCH_FAULTS_FOR=$(FOR) REDLATCH_FAULTS_SEED='$(SEED)' REDLATCH_FAULTS_PROFILE='$(PROFILE)' \
	  REDLATCH_FAULTS_WIDE='$(WIDE)' REDLATCH_FAULTS_KEEP='$(CURDIR)/.cache/faults' go test $(RACE) -count=1 -timeout 0 -v $(TEST_FLAGS) -run '^TestFaults$$' ./faults

.PHONY: promises
promises: ##test Write docs/PROMISES.md anew from the comments of the tests.
	@go test ./docs -count=1 -run '^TestPromises$$' -update

.PHONY: acl
acl: ##test Write the rights in docs/ACL.md anew from internal/acl.
	@go test ./docs -count=1 -run '^TestACLPage$$' -update

# A part of the name of a mutation, or all.
ONLY ?= all

.PHONY: breaks
breaks: ##test Put bugs into a copy of the code; the test of each promise must find its own; see ONLY.
	@scripts/ensure-redis.sh
	cd integration && REDLATCH_BREAKS='$(ONLY)' go test -count=1 -timeout 0 -v -run '^TestBreaks$$' ./promises

.PHONY: mutations
mutations: ##faults Put bugs into a copy of the code; make faults must find each; see ONLY.
	@scripts/ensure-redis.sh
	cd integration && REDLATCH_FAULTS_MUTATIONS='$(ONLY)' go test -count=1 -timeout 0 -v -run '^TestMutations$$' ./faults

.PHONY: simulate
simulate: ##faults Play the lock table's worlds at random, all profiles for FOR together; see SEED, PROFILE.
	REDLATCH_DESK_FOR='$(FOR)' REDLATCH_DESK_SEED='$(SEED)' REDLATCH_DESK_PROFILE='$(PROFILE)' \
	  go test -count=1 -timeout 0 -v $(TEST_FLAGS) -run '^TestWorlds$$' ./internal/desk

.PHONY: mutants
mutants: ##faults Put bugs into a copy of the lock table; its simulation or its search must find each; see ONLY.
	REDLATCH_DESK_MUTANTS='$(ONLY)' go test -count=1 -timeout 0 -v -run '^TestMutants$$' ./internal/desk

# How long for each target, and only those with this in "folder target", e.g.
# make fuzz FUZZ=5m TARGET=rlock.
FUZZ ?= 30s
TARGET ?=

.PHONY: fuzz
fuzz: ##faults Search for names, replies and messages that break something; see FUZZ, TARGET.
	@scripts/ensure-redis.sh
	@scripts/fuzz.sh '$(FUZZ)' '$(TARGET)'

.PHONY: observe
observe: ##try Run Redis, Prometheus, a Jaeger if there is one, and a flash sale until interrupted.
	@scripts/ensure-redis.sh
	@scripts/ensure-prometheus.sh
	@go run ./examples/observability -prometheus -jaeger auto

.PHONY: jaeger
jaeger: ##tools Build a Jaeger for make observe and for the test of the trace queries; some minutes.
	@scripts/ensure-jaeger.sh

.PHONY: dashboard
dashboard: ##tools Check the Grafana dashboard against the schema that Grafana publishes (needs npm).
	@otel/dashboards/check-dashboard.sh

.PHONY: install
install: ##try Install the command redlatch into Go's bin folder.
	go install ./cmd/redlatch

.PHONY: pictures
pictures: ##tools Retake the pictures in docs/images: redlatch serve, and a trace.
	@scripts/ensure-redis.sh
	@scripts/ensure-chromium.sh
	cd cmd/redlatch && REDLATCH_TEST_PICTURES=$(CURDIR)/docs/images go test -count=1 -run TestBrowser .
	cd examples && REDLATCH_TEST_PICTURES=$(CURDIR)/docs/images go test -count=1 -run TestTheTraceLeadsToTheHolder ./tracing

.PHONY: clean
clean: ##tools Remove tools and logs that the targets made.
	rm -rf .cache
