# Everything that a person or CI runs. Each target says how to repeat what
# failed.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO       ?= go
SEEDS    ?= 1-1000
CI_SEEDS ?= 1-200
FUZZTIME ?= 20s
CHECKS   ?= 20000
COUNT    ?= 6
TIME     ?= 30s
SEED     ?= 1
KILLS    ?= 50

# Clocks beyond the bound that reads rest on: reads may be old then, and nothing else.
BEYOND = clock-beyond,kill,isolate,partition,pause

# again COMMAND: runs it and, if it fails, says how to run it alone.
define again
{ $(1); } || { status=$$?; printf '\nTo repeat this: %s\n' '$(1)' >&2; exit $$status; }
endef

.PHONY: help build run test check race sim fuzz rapid maelstrom interop bench microbench zoo kill9

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## all binaries, into ./bin
	@mkdir -p bin
	@$(call again,CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...)

run: build ## a one-node cluster on 127.0.0.1:9092, data in ./pawl-data
	./bin/pawl serve --listen 127.0.0.1:9092 --data-dir ./pawl-data

test: check build ## all that a commit needs, and what CI runs (CI_SEEDS=1-200)
	@$(call again,$(GO) test ./...)
	@.ci/seeds $(CI_SEEDS) 1
	@.ci/seeds $(CI_SEEDS) 0
	@$(MAKE) --no-print-directory maelstrom TIME=10s

check: ## gofmt, vet, staticcheck, pawlvet
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then \
		printf 'not formatted:\n%s\nTo mend this: gofmt -w %s\n' "$$unformatted" "$$(echo $$unformatted)" >&2; exit 1; fi
	@$(call again,$(GO) vet ./...)
	@$(call again,$(GO) tool staticcheck ./...)
	@$(call again,$(GO) run ./cmd/pawlvet ./...)

race: ## every test under the race detector, with the costly assertions
	@$(call again,CGO_ENABLED=1 $(GO) test -race ./...)

sim: build ## simulation seeds, of one node and of clusters; from 1,000 on every fault must strike and every mark be reached (SEEDS=1-1000)
	@$(call again,bin/pawlsim sweep --seeds $(SEEDS))
	@$(call again,bin/pawlsim sweep --require-marks --nodes 0 --seeds $(SEEDS))
	@$(call again,bin/pawlsim sweep --once --nodes 0 --faults $(BEYOND) --seeds $(SEEDS))

fuzz: ## every fuzz target in turn (FUZZTIME=20s each)
	@for file in $$(git ls-files '*_test.go' | xargs grep -lE '^func Fuzz'); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			cmd="$(GO) test -run ^$$ -fuzz ^$$target\$$ -fuzztime $(FUZZTIME) ./$$(dirname $$file)"; \
			echo "$$cmd"; $$cmd || { printf '\nTo repeat this: %s\n' "$$cmd" >&2; exit 1; }; \
		done; \
	done

rapid: ## every property test, of CHECKS=20000 draws rather than 100
	@for dir in $$(git ls-files '*_test.go' | xargs grep -l '"pgregory.net/rapid"' | xargs -n1 dirname | sort -u); do \
		cmd="$(GO) test ./$$dir -timeout 60m -rapid.checks=$(CHECKS)"; \
		echo "$$cmd"; $$cmd || { printf '\nTo repeat this: %s\n' "$$cmd" >&2; exit 1; }; \
	done

maelstrom: build ## the node under Maelstrom (MAELSTROM=path of its launcher), or else under the harness (TIME=30s SEED=1)
ifdef MAELSTROM
	@$(call again,MAELSTROM=$(MAELSTROM) maelstrom/run.sh bin/pawlmaelstrom)
else
	@$(call again,$(GO) test -count=1 -v -timeout 1h -run "^(TestNodeUnderFaults|TestClusterInVirtualTime)$$" ./maelstrom -maelstrom.time $(TIME) -maelstrom.seed $(SEED))
endif

interop: ## clients that others wrote, against a real broker
	@$(call again,$(GO) test -count=1 -v -timeout 1h -tags interop ./workloads/interop)

bench: build ## pawl beside the null broker, goal by goal (about ten minutes), then the Go benchmarks
	@$(call again,bin/pawl bench table)
	@$(call again,$(MAKE) --no-print-directory microbench)

microbench: ## Go benchmarks, COUNT=5 times, into bin/bench.txt for benchstat
	@mkdir -p bin
	@$(call again,$(GO) test -run ^$$ -bench . -benchmem -count $(COUNT) ./broker/... ./storage/... ./sim/... | tee bin/bench.txt)

zoo: build ## the published bugs put back: each must be found
	@$(call again,bin/pawlsim zoo)

kill9: ## kill -9 a real broker under load KILLS=50 times; nothing acknowledged may be lost
	@$(call again,$(GO) test -count=1 -timeout 30m -v ./workloads/kill9 -args -kills $(KILLS) -seed $(SEED))
	@$(call again,$(GO) test -count=1 -v -timeout 1h -run ^TestNodeUnderFaults$$/kill ./maelstrom -maelstrom.time $(TIME) -maelstrom.seed $(SEED))
