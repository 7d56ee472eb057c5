# Everything a developer does here. `make` alone builds and tests.
SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := all

# Versions of the tools, in one place. protoc comes from the system (Debian: protobuf-compiler).
PROTOC_VERSION      := 3.21.12
PROTOC_GEN_GO       := v1.36.12
PROTOC_GEN_GO_GRPC  := v1.6.2
STATICCHECK         := v0.8.2

TOOLS    := $(CURDIR)/.tools
FUZZTIME ?= 1m
COUNT    ?= 1

.PHONY: all help build test test-all lint proto asm bench bench-train bench-transport fuzz run

all: build test ## Build and test

help: ## Print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-16s %s\n", $$1, $$2}'

build: ## Build everything, also without cgo and for arm64
	go build ./...
	CGO_ENABLED=0 go build ./...
	CGO_ENABLED=0 GOARCH=arm64 go build ./...
	go build -o bin/ ./examples/...

test: lint ## Lint, then the unit tests with the race detector, -short
	go test -race -short ./...

test-all: ## Everything, no race detector
	go test -count=1 ./...

lint: ## gofmt, vet, staticcheck, import table, stale generated code
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt: run gofmt -w on:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	GOARCH=arm64 go vet ./model/... ./transport/... ./ps ./worker
	go run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK) ./...
	scripts/imports
	scripts/stale

proto: $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc ## Regenerate the protobuf code; OUT=dir for elsewhere
	@protoc --version | grep -qF $(PROTOC_VERSION) || { echo "want protoc $(PROTOC_VERSION), have $$(protoc --version 2>&1): install protobuf-compiler"; exit 1; }
	scripts/protoc $(TOOLS) $(or $(OUT),.)

$(TOOLS)/protoc-gen-go:
	GOBIN=$(TOOLS) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO)

$(TOOLS)/protoc-gen-go-grpc:
	GOBIN=$(TOOLS) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GO_GRPC)

asm: ## Regenerate the assembly of the compute kernels; OUT=dir for elsewhere
	cd model/compute/gen && go run . -out $(abspath $(or $(OUT),model/compute))

bench: ## Benchmarks into docs/bench; COUNT=10 for benchstat
	@mkdir -p docs/bench
	go test -run '^$$' -bench . -benchmem -count $(COUNT) ./... | tee docs/bench/$$(date +%F)-$$(git rev-parse --short HEAD).txt

bench-train: ## One worker against PyTorch (python3-torch, libopenblas0-pthread), and what a second brings
	go run ./examples/race --presets=small,medium,large --threads=1,2
	go run ./examples/race --profile
	go run ./examples/scaling --presets small,medium,large --transports grpc,tcp,shm
	go run ./examples/scaling --presets small --transports grpc,tcp,shm --encoding float16

bench-transport: ## Race the transports against plain TCP and memcpy; fails below the marks
	@mkdir -p docs/bench
	go run ./examples/transfer --check --json docs/bench/transport.json --plot docs/bench/transport.png

fuzz: ## Each fuzz target for FUZZTIME
	scripts/fuzz $(FUZZTIME)

run: ## Train the small model on the embedded corpus, everything in one process
	go run ./examples/ptb
