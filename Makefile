# Forwards to Meson and to scripts/, so that the usual words work.
# `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
export PREFIX DESTDIR

# The loader looks at a cache of these two alone; others need no update of it.
ldconfig = case "$$DESTDIR:$$PREFIX:$$(id -u)" in \
	:/usr:0 | :/usr/local:0) ldconfig ;; esac

.DEFAULT_GOAL := all
.PHONY: all deps run check check-all install uninstall bench torture fuzz mutants format lint coverage \
	clean help

all: ## build the library and the command, in build/
	@scripts/deps -n build
	@scripts/build

deps: ## install what the build needs, on Debian and Ubuntu
	@scripts/deps build

run: deps all ## build, then show a command under a lock, and a second that waits
	@scripts/demo build/holdfast

check: ## run every test once, under sanitizers: a few minutes
	@scripts/check

check-all: ## as check, then clang, ThreadSanitizer, mutants, fuzzing, torture: up to 40 minutes
	@scripts/check all

install: all ## install below PREFIX (/usr/local), inside DESTDIR if it is set
	@meson install -C build --no-rebuild
	@$(ldconfig)

uninstall: ## remove what install has put below PREFIX, inside DESTDIR
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

mutants: ## prove that the tests can fail: switch on each planted bug
	@scripts/deps build test
	@scripts/mutants

format: ## lay out the sources as .clang-format says
	@scripts/deps lint
	@scripts/format

lint: ## phrases, layout, clang-tidy and cppcheck; changes nothing
	@scripts/deps build test lint
	@scripts/lint

coverage: ## measure coverage; the core must have all lines and branches
	@scripts/deps build test coverage
	@scripts/coverage

clean: ## remove build/
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | \
		awk -F'|' 'BEGIN { print "holdfast\n" } \
			{ printf "  make %-12s %s\n", substr($$1, 3), $$2 }'
