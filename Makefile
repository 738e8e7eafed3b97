# Everything that is run here is run by CI too (.ci/run is `make test`), and
# every target says how to repeat what failed.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
SEEDS   ?= 1-500
FUZZTIME ?= 20s
COUNT   ?= 5
CI_SEEDS ?= 1-40
TIME    ?= 30s
SEED    ?= 1

# again COMMAND, TO REPEAT IT: runs, and on a failure says how to run it alone.
define again
{ $(1); } || { status=$$?; printf '\nTo repeat this: %s\n' '$(if $(2),$(2),$(1))' >&2; exit $$status; }
endef

.PHONY: help build run test check race sim fuzz maelstrom interop bench zoo kill9

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## all binaries, into ./bin
	@mkdir -p bin
	@$(call again,CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...)

run: build ## a one-node cluster on 127.0.0.1:9092, data in ./pawl-data
	./bin/pawl serve --listen 127.0.0.1:9092 --data-dir ./pawl-data

test: check build ## all that a commit needs, and what CI runs: under 15 minutes on two cores
	@$(call again,$(GO) test ./...)
	@$(call again,bin/pawlsim sweep --seeds $(CI_SEEDS) --json > bin/sweep-1.json)
	@$(call again,GOMAXPROCS=1 bin/pawlsim sweep --seeds $(CI_SEEDS) --json > bin/sweep-2.json)
	@$(call again,diff <(grep -o '"trace_hash": *"[^"]*"' bin/sweep-1.json) <(grep -o '"trace_hash": *"[^"]*"' bin/sweep-2.json) && echo "the same trace hashes twice: seeds $(CI_SEEDS)",make test CI_SEEDS=$(CI_SEEDS))
	@$(MAKE) --no-print-directory maelstrom

check: ## gofmt, vet, staticcheck, pawlvet
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then \
		printf 'not formatted:\n%s\nTo mend this: gofmt -w %s\n' "$$unformatted" "$$(echo $$unformatted)" >&2; exit 1; fi
	@$(call again,$(GO) vet ./...)
	@$(call again,$(GO) tool staticcheck ./...)
	@$(call again,$(GO) run ./cmd/pawlvet ./...)

race: ## every test under the race detector, with the costly assertions
	@$(call again,CGO_ENABLED=1 $(GO) test -race ./...)

sim: build ## simulation seeds SEEDS=1-500
	@$(call again,bin/pawlsim sweep --seeds $(SEEDS))

fuzz: ## every fuzz target for FUZZTIME=20s
	@for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			cmd="$(GO) test -run ^$$ -fuzz ^$$target\$$ -fuzztime $(FUZZTIME) $$(dirname $$file)"; \
			echo "$$cmd"; $$cmd || { printf '\nTo repeat this: %s\n' "$$cmd" >&2; exit 1; }; \
		done; \
	done

maelstrom: build ## the node under Maelstrom (MAELSTROM=path to its launcher), or under the harness in ./maelstrom
ifdef MAELSTROM
	@$(call again,MAELSTROM=$(MAELSTROM) ./maelstrom/run.sh bin/pawlmaelstrom)
else
	@$(call again,$(GO) test -count=1 -v -run ^TestNodeUnderFaults$$ ./maelstrom -maelstrom.time $(TIME) -maelstrom.seed $(SEED))
endif

interop: build ## real clients against a real broker
	@$(call again,$(GO) test -count=1 -tags interop ./workloads/... ./cmd/...)

bench: build ## Go benchmarks, COUNT=5 times, into bin/bench.txt for benchstat
	@$(call again,$(GO) test -run ^$$ -bench . -benchmem -count $(COUNT) ./broker/... ./storage/... ./sim/... | tee bin/bench.txt)

zoo: build ## the published bugs put back: each must be found
	@$(call again,bin/pawlsim zoo)

kill9: build ## kill -9 a real broker under load, again and again
	@$(call again,$(GO) test -count=1 -v -run Kill9 ./cmd/... ./broker/... ./workloads/...)
