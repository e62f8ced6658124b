# Forwards the usual targets to Meson and to scripts/. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
export PREFIX DESTDIR

# The cache of the dynamic loader covers only these two prefixes.
ldconfig = case "$$DESTDIR:$$PREFIX:$$(id -u)" in \
	:/usr:0 | :/usr/local:0) ldconfig ;; esac

.DEFAULT_GOAL := all
.PHONY: all deps run check check-all install uninstall bench torture fuzz mutants format lint coverage \
	clean help

all: ## build the library, the command and the daemon, in build/
	@scripts/deps -n build
	@scripts/build

deps: ## install the build dependencies, on Debian and Ubuntu
	@scripts/deps build

run: deps all ## build, then show two commands that compete for a lock
	@scripts/demo build/holdfast

check: ## run every test once, with sanitizers: a few minutes
	@scripts/check

check-all: ## check, then clang, ThreadSanitizer, mutants, fuzzing, models, torture: up to 40 minutes
	@scripts/check all

install: all ## install to PREFIX (/usr/local), inside DESTDIR if it is set
	@meson install -C build --no-rebuild
	@$(ldconfig)

uninstall: ## remove the installed files from PREFIX, inside DESTDIR if it is set
	@scripts/uninstall build
	@$(ldconfig)

bench: ## build with optimisation and run every benchmark
	@scripts/deps build bench
	@scripts/bench

torture: ## run the torture tests for TORTURE_SECONDS (60) each
	@scripts/deps build test
	@scripts/torture

fuzz: ## run every fuzz target for FUZZ_SECONDS (60)
	@scripts/deps build test
	@scripts/fuzz

mutants: ## check that the tests find each planted bug
	@scripts/deps build test
	@scripts/mutants

format: ## format the sources with clang-format
	@scripts/deps lint
	@scripts/format

lint: ## check phrases and layout, run clang-tidy and cppcheck; changes nothing
	@scripts/deps build test lint
	@scripts/lint

coverage: ## measure coverage; src/core must reach 100 % of lines and branches
	@scripts/deps build test coverage
	@scripts/coverage

clean: ## remove build/
	@rm -rf build

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | \
		awk -F'|' 'BEGIN { print "holdfast\n" } \
			{ printf "  make %-12s %s\n", substr($$1, 3), $$2 }'
