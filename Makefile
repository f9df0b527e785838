# The two commands of a fresh machine are `make demo` and `make test`; both install first if need be.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install demo test test-slow lint bench bench-quick reproduce clean

help:            ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/  /'

install: .venv/installed  ## .venv with everything, by plain pip

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: install    ## does √d_k matter? 12 runs on the embedded data, about five minutes on two cores
	$(BIN)/ablate run score_divisor --seeds 3 --only model.arch.d_k=16,128

test: install    ## every test that needs no more than ten minutes in all
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: install  ## the others
	$(BIN)/python -m pytest -m slow

lint: install    ## ruff
	$(BIN)/ruff check .

bench: install   ## speed beside the peers installed, about half an hour
	$(BIN)/ablate bench

bench-quick: install  ## has our speed beside a peer's fallen by a third? about four minutes
	$(BIN)/ablate bench --quick

reproduce: install  ## every question of the two pages, and their tables; days, goes on where it was stopped
	$(BIN)/ablate reproduce
	$(BIN)/ablate reproduce REAL_DATA.md

clean:           ## the environment; results in runs/ stay
	rm -rf .venv *.egg-info
