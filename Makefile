# Holdfast. `make help` lists what can be done here.
export GOTOOLCHAIN := go1.27.3
TOOLS := go tool -modfile=tools/go.mod

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/holdfast
	go build -o bin/holdfast ./cmd/holdfast

.PHONY: up
up: build ## Run everything: PostgreSQL, two replicas of each service, some data
	bin/holdfast up

.PHONY: test
test: ## Run all tests, on private PostgreSQL clusters, with the race detector
	go test -race -shuffle=on ./...

.PHONY: check
check: ## Format, vet, lint, tidy modules
	@test -z "$$($(TOOLS) gofumpt -l .)" || { $(TOOLS) gofumpt -d .; exit 1; }
	go vet ./...
	cd bench && go vet ./...
	$(TOOLS) staticcheck ./...
	$(TOOLS) unparam ./...
	go mod tidy -diff
	cd tools && go mod tidy -diff
	cd bench && go mod tidy -diff

.PHONY: bench
bench: ## Compare with other systems side by side, and run the micro-benchmarks; docs/benchmarks*.md say what of
	cd bench && go run ./inventory && go run ./chronos
	go test -run '^$$' -bench . -benchtime 1s ./...

.PHONY: clean
clean: ## Delete what was built; the data in .holdfast stays
	rm -rf bin
