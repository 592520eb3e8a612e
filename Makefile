# The same targets for people and for CI. `make demo` and `make test` set up all they need on a bare Debian 12, as root.

PYTHON ?= /usr/bin/python3
VENV   := .venv
BIN    := $(VENV)/bin
ACL    ?=
SUITE  ?= control-plane

# What the machine must have: the switch, compilers for the fast parts and for what runs in the kernel, and what the tests
# ask (a database, certificates, the kernel's own packet filter).
DEBIAN := ca-certificates clang gcc iproute2 iptables iputils-ping libbpf-dev libc6-dev nftables openssl openvswitch-switch \
          postgresql procps python3-dev python3-venv
# What drives traffic through firewalls, in suites and their tests.
TRAFFIC := httperf iperf3 lighttpd netcat-openbsd

.PHONY: help demo test test-long test-ryu search lint format bench docs pictures packages clean

help:  ## what each target does
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

demo: packages $(VENV)/.ready  ## a cloud in namespaces, a real ACL, real packets; ACL=path takes any
	@exec $(BIN)/aclflow demo $(if $(ACL),--acl "$(ACL)")

test: DEBIAN += $(TRAFFIC) chromium fonts-dejavu-core
test: packages $(VENV)/.ready  ## every test: laws, contracts, real switches, real database
	$(BIN)/pytest -m "not system and not long" -n 2 --dist loadfile
	$(BIN)/pytest -m "system and not long"

test-long: packages $(VENV)/.ready  ## the tests that take minutes each
	$(BIN)/pytest -m long

search: packages $(VENV)/.ready  ## the laws on examples nobody tried yet, each run on others
	HYPOTHESIS_PROFILE=search $(BIN)/pytest -m "not system and not long" -n 2 --dist loadfile

test-ryu: packages .venv-ryu/.ready  ## the same OpenFlow app under real ryu, in an environment of its own
	.venv-ryu/bin/python -m pytest -p no:cacheprovider -c tests/ryu/pytest.ini tests/ryu

lint: $(VENV)/.ready  ## style, types, import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --config setup.cfg

format: $(VENV)/.ready  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: DEBIAN += $(TRAFFIC) ovn-central ovn-host
bench: packages $(VENV)/.ready  ## measure; SUITE=name, QUICK=1 for a short run
	$(BIN)/aclflow bench $(SUITE) $(if $(QUICK),--quick) --out docs/benchmarks/$(SUITE)

docs: $(VENV)/.ready  ## rewrite the pages that are generated from declarations
	$(BIN)/python -c 'from orchestrator.compile.pipeline_page import pipeline_page; print(pipeline_page(), end="")' \
	    > docs/pipeline.md
	PYTHONPATH=. $(BIN)/python tests/formats/real_data.py

pictures: DEBIAN += chromium fonts-dejavu-core
pictures: packages $(VENV)/.ready  ## take the console's screenshots anew
	ACLFLOW_SCREENSHOTS=docs/console $(BIN)/pytest tests/console/test_browser.py

packages:
	@missing=$$(for name in $(DEBIAN); do \
	    dpkg-query -W -f='$${Status}' $$name 2>/dev/null | grep -q '^install ok installed' || echo $$name; done); \
	if [ -n "$$missing" ]; then \
	    echo "installing Debian packages:" $$missing; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi

$(VENV)/.ready: requirements.txt setup.cfg setup.py pyproject.toml $(wildcard orchestrator/*/_native/*.[ch] orchestrator/*/_native/*/*.c orchestrator/enforce/drivers/*/_native/*.[ch]) | packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.venv-ryu/.ready: tests/ryu/requirements.txt | packages
	test -x .venv-ryu/bin/python || $(PYTHON) -m venv .venv-ryu
	.venv-ryu/bin/pip install --quiet --disable-pip-version-check "setuptools==67.6.1" wheel
	.venv-ryu/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --requirement tests/ryu/requirements.txt
	touch $@

clean:  ## forget the environments and caches
	rm -rf $(VENV) .venv-ryu .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
