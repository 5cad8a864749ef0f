# Two commands do everything: `make demo` runs the product, `make test` its tests.
# Each installs what the machine lacks and says so.

# SQLite's full-text search is compiled in by this tag; node/require_fts5.go
# fails the build without it.
TAGS    := sqlite_fts5
GO      ?= go
BIN     := bin/scidex
LINT    := $(GO) tool -modfile=tools/go.mod golangci-lint
TESTS   ?= ./...
CLIENTS := test/clients/node_modules/.installed

export CGO_ENABLED = 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## run the product: database, hub, node and a sample, in one process
	@scripts/need.sh postgres
	@$(BIN) demo

.PHONY: build
build: ## build bin/scidex
	@scripts/need.sh cc
	@[ -x $(BIN) ] || echo "building $(BIN); the first time it compiles SQLite, which takes a minute or more"
	$(GO) build -tags $(TAGS) -o $(BIN) ./cmd/scidex

.PHONY: test
test: $(CLIENTS) ## run all tests
	@scripts/need.sh cc postgres
	$(GO) vet -tags $(TAGS) ./...
	$(GO) test -tags $(TAGS) -timeout 40m $(TESTFLAGS) $(TESTS)

# The clients of GraphQL and MCP that people use, for the tests that drive them.
$(CLIENTS): test/clients/package-lock.json
	@scripts/need.sh node
	cd test/clients && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: check
check: fmt-check lint generate-check ## what must hold before a change lands: format, lint, race tests, generated code
	$(MAKE) test TESTFLAGS="-race -shuffle=on"

.PHONY: lint
lint:
	$(LINT) run --build-tags $(TAGS)

.PHONY: fmt
fmt: ## format all code
	$(LINT) fmt

.PHONY: fmt-check
fmt-check:
	@out="$$($(LINT) fmt --diff)"; if [ -n "$$out" ]; then echo "$$out"; echo "not formatted: run make fmt"; exit 1; fi

.PHONY: generate
generate: ## write generated code and references anew
	$(GO) generate -tags $(TAGS) ./...

.PHONY: generate-check
generate-check: generate
	@git diff --exit-code -- graph/internal docs verb/examples.json || { echo "generated files changed: commit them"; exit 1; }

.PHONY: bench
bench: ## measure, each figure beside its floor in the same run
	@scripts/need.sh cc postgres
	$(GO) run -tags $(TAGS) ./cmd/bench
	$(GO) test -tags $(TAGS) -run '^$$' -bench 'Visible|Reads|PointRead|Apply' -benchtime 3s ./hub ./node

.PHONY: torture
torture: build ## break the running product on purpose, in rounds (ROUNDS, 100; FOR, 1h)
	@scripts/need.sh postgres
	$(GO) run -tags $(TAGS) ./cmd/torture -bin $(BIN) -rounds $${ROUNDS:-100} -for $${FOR:-1h} $(TORTURE)

.PHONY: fuzz
fuzz: ## fuzz each parser for a while (FUZZTIME, 30s)
	@for pkg in $$($(GO) list -tags $(TAGS) ./...); do \
		for f in $$($(GO) test -tags $(TAGS) -list '^Fuzz' $$pkg | grep ^Fuzz); do \
			$(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-30s} $$pkg || exit 1; \
		done; \
	done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin test/clients/node_modules
