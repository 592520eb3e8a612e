# The same targets for people and for CI. `make demo` and `make test` set up all they need on a bare Debian 12, as root.

PYTHON ?= /usr/bin/python3
VENV   := .venv
BIN    := $(VENV)/bin
ACL    ?=
SUITE  ?= control-plane
SEED   ?= 1
TIME   ?= 300
STORE  ?= sqlite
ONLY   ?=
# OSV's export of PyPI: the advisories that pinned packages are held against, without a network.
OSV    ?= /var/cache/osv/PyPI.zip

# Modules are compiled once and kept, whatever the environment says: tests and the lab start hundreds of Pythons.
export PYTHONDONTWRITEBYTECODE :=

# What the machine must have: the switch, what announces routes of hosts, compilers for the fast parts and for what runs in the kernel, and what the tests
# ask (a database, certificates, the kernel's own packet filter).
DEBIAN := bird2 ca-certificates clang gcc iproute2 iptables iputils-ping libbpf-dev libc6-dev libjemalloc2 nftables openssl \
          openvswitch-switch postgresql procps python3-dev python3-venv
# What drives traffic through firewalls, in suites and their tests.
TRAFFIC := conntrackd erlang-mnesia hping3 httperf iperf3 lighttpd netcat-openbsd qperf redis-server
# An OpenCL device of the processor, for the classifiers that run on devices.
OPENCL := pocl-opencl-icd
# The tunnel that a firewall server is compared with.
TUNNEL := strongswan-charon strongswan-swanctl libcharon-extra-plugins libstrongswan-standard-plugins
# A real OpenStack on loopback: the packages with its code, without the daemons' own; a database, and what carries messages.
CLOUD := glance-common heat-common mariadb-server memcached neutron-common nova-common python3-keystone python3-memcache \
         python3-placement python3-pymysql rabbitmq-server uwsgi-core uwsgi-plugin-python3
# Compute hosts with instances, on this machine.
COMPUTE := genisoimage libvirt-clients libvirt-daemon-driver-qemu libvirt-daemon-system openssh-client openssh-server python3-libvirt \
           qemu-system-x86 qemu-utils
# Another routing daemon that announces the routes of hosts.
ROUTING := frr
# What resolves names for endpoints, and clients that ask their host for addresses.
SERVING := dnsmasq-base isc-dhcp-client ndisc6 udhcpc
# What images are made with, and what boots one and logs in to it.
IMAGING := debootstrap e2fsprogs grub-common grub-pc-bin qemu-utils sudo
BOOTING := openssh-client openssh-server qemu-system-x86 xorriso

# Of several goals in one call (`make lint test`) `packages` is made for the first alone; so who needs more asks again.
more-packages = @$(MAKE) --no-print-directory packages DEBIAN="$(DEBIAN)"

.PHONY: help demo test test-long test-openstack cloud test-cloud bench-cloud test-ryu test-ansible deploy-log search chaos lint format bench docs advisories package images pictures packages lock clean announcement

help:  ## what each target does
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

demo: announcement packages $(VENV)/.ready  ## a cloud in namespaces, a real ACL, real packets; ACL=path takes any, FAILOVER=1 kills firewalls
	@exec $(BIN)/aclflow demo $(if $(ACL),--acl "$(ACL)") $(if $(filter-out 0,$(FAILOVER)),--failover)

announcement:
	@test -e $(VENV)/.ready || echo "the first time: 17 Debian packages with what they need, then a Python environment: one to four minutes; then the demonstration, 20 seconds"

test: DEBIAN += $(OPENCL) $(TRAFFIC) $(TUNNEL) $(ROUTING) $(SERVING) age chromium-headless-shell fonts-dejavu-core openssh-client openssh-server prometheus systemd $(if $(filter-out 0,$(OPENSTACK)),$(CLOUD))
# Three workers on two cores: tests wait for real processes, packets and browsers.
test: packages $(VENV)/.ready .venv-ansible/.ready  ## every test: laws, contracts, real switches, real database
	$(more-packages)
	tests/run-twice -m "not system and not long" -n 3 --dist loadfile
	tests/run-twice -m "system and not long" --dist loadfile --tx "3*popen//python=tests/isolated-python"

ansible: .venv-ansible/.ready  ## Ansible with the collection aclflow.cloud, in an environment of its own

test-long: DEBIAN += $(IMAGING) $(BOOTING) $(OPENCL) $(TRAFFIC) libclang-rt-14-dev
test-long: export ACLFLOW_OSV = $(OSV)
test-long: packages $(VENV)/.ready .venv-ansible/.ready .venv-images/.ready  ## the tests that take minutes each
	$(more-packages)
	$(BIN)/pytest -m long

search: DEBIAN += $(OPENCL)
search: packages $(VENV)/.ready  ## the laws on examples nobody tried yet, each run on others
	$(more-packages)
	HYPOTHESIS_PROFILE=search $(BIN)/pytest -m "not system and not long" -n 2 --dist loadfile

chaos: packages $(VENV)/.ready  ## faults in a lab with packets on the wire; SEED=1 TIME=300 STORE=sqlite|postgresql
	$(BIN)/aclflow lab chaos --seed $(SEED) --time $(TIME) --store $(STORE) $(if $(ONLY),--only "$(ONLY)")

test-ansible: DEBIAN += debootstrap openssh-client
test-ansible: packages $(VENV)/.ready .venv-ansible/.ready  ## the collection: linted, its modules, and a whole site for real
	$(more-packages)
	cd ansible && ANSIBLE_COLLECTIONS_PATH=../.venv-ansible/collections PATH=$(CURDIR)/.venv-ansible/bin:$$PATH ansible-lint --offline
	$(BIN)/pytest tests/deployment

deploy-log: DEBIAN += debootstrap openssh-client
deploy-log: packages $(VENV)/.ready .venv-ansible/.ready  ## the whole site for real, the end of its log into docs/deploy.md
	$(more-packages)
	$(BIN)/python tests/deployment/record.py

test-openstack: DEBIAN += $(CLOUD)
test-openstack: packages $(VENV)/.ready  ## fleets in a real Keystone..Heat on loopback; part of `test` with OPENSTACK=1
	$(more-packages)
	OPENSTACK=1 tests/run-twice tests/openstack

cloud: DEBIAN += $(CLOUD) $(COMPUTE) $(SERVING)
cloud: packages $(VENV)/.ready  ## an OpenStack with instances that run behind aclflow, on this machine; it stays until Ctrl-C
	$(more-packages)
	@PYTHONPATH=tests/openstack exec $(BIN)/python -W ignore -m twohosts stay

test-cloud: DEBIAN += $(CLOUD) $(COMPUTE) $(SERVING) $(IMAGING)
test-cloud: packages $(VENV)/.ready .venv-images/.ready  ## stories of instances in such a cloud; 16 GiB of memory and an hour are enough
	$(more-packages)
	INSTANCES=1 $(BIN)/pytest tests/instances

bench-cloud: DEBIAN += $(CLOUD) $(COMPUTE) $(SERVING) iperf3 lighttpd
bench-cloud: packages $(VENV)/.ready  ## Neutron's own firewall beside aclflow's in such a cloud; QUICK=1 for a short run
	$(more-packages)
	@PYTHONPATH=tests/openstack $(BIN)/python -W ignore -m twohosts bench $(if $(QUICK),--quick) --out docs/benchmarks/cloud

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

bench: DEBIAN += $(OPENCL) $(TRAFFIC) $(TUNNEL) libdpdk-dev ovn-central ovn-host pkg-config
bench: packages $(VENV)/.ready  ## measure; SUITE=name, QUICK=1 for a short run
	$(more-packages)
	$(BIN)/aclflow bench $(SUITE) $(if $(QUICK),--quick) --out docs/benchmarks/$(SUITE)

docs: $(VENV)/.ready  ## rewrite the pages that are generated from declarations
	$(BIN)/python -c 'from orchestrator.compile.pipelines.page import pipeline_page; print(pipeline_page(), end="")' \
	    > docs/pipeline.md
	$(BIN)/python -c 'from orchestrator.compile.pipelines.page import edge_page; print(edge_page(), end="")' \
	    > docs/edge-pipeline.md
	$(BIN)/python -c 'from orchestrator.compile.pipelines.page import spread_page; print(spread_page(), end="")' \
	    > docs/spread-pipeline.md
	$(BIN)/python ansible/reference.py > docs/ansible.md
	$(BIN)/python packaging/generate.py
	PYTHONPATH=.:tests $(BIN)/python tests/formats/real_data.py
	PYTHONPATH=. $(BIN)/python tests/openapi_text.py

advisories: $(VENV)/.ready  ## known vulnerabilities of pinned packages, by OSV's export of PyPI (OSV=path) or the list that is kept here
	$(BIN)/python packaging/advisories.py $(or $(wildcard $(OSV)),packaging/advisories.json)

lock: $(VENV)/.ready  ## pin every package anew, with digests; UPGRADE=1 takes newer versions
	$(BIN)/python packaging/lock.py $(if $(UPGRADE),--upgrade)

package: packages $(VENV)/.ready  ## the wheel, with units, samples, alerts and completion, Neutron's driver, and their bills of materials, in dist/
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . ./networking-aclflow
	$(BIN)/python packaging/sbom.py "$$(ls -t dist/aclflow-*.whl | head -1)" > dist/aclflow.cdx.json
	$(BIN)/python packaging/sbom.py "$$(ls -t dist/networking_aclflow-*.whl | head -1)" > dist/networking-aclflow.cdx.json

images: DEBIAN += $(IMAGING)
images: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
images: package .venv-images/.ready  ## what a cloud boots, in dist/images; IMAGES=names, TWICE=1 compares two builds, MIRROR=url
	$(more-packages)
	@PYTHONPATH=vnf-images $(BIN)/python -m imagebuilder $(IMAGES) $(if $(TWICE),--twice) \
	    $(if $(MIRROR),--mirror $(MIRROR)) $(if $(SECURITY_MIRROR),--security-mirror $(SECURITY_MIRROR))

pictures: DEBIAN += chromium-headless-shell fonts-dejavu-core
pictures: packages $(VENV)/.ready  ## take the console's screenshots anew
	$(more-packages)
	ACLFLOW_SCREENSHOTS=docs/console $(BIN)/pytest tests/console tests/system/test_console_tour.py

# Whatever these packages bring as services is not started: the lab, suites and tests run their own.
packages:
	@missing=$$(for name in $(DEBIAN); do \
	    dpkg-query -W -f='$${Status}' $$name 2>/dev/null | grep -q '^install ok installed' || echo $$name; done); \
	if [ -n "$$missing" ] && [ "$$(id -u)" != 0 ]; then \
	    echo "these Debian packages are missing, and only root installs packages:" $$missing >&2; \
	    echo "as root: make packages" >&2; exit 1; \
	fi; \
	if [ -n "$$missing" ]; then \
	    echo "installing Debian packages:" $$missing; \
	    policy=/usr/sbin/policy-rc.d; \
	    test -e $$policy || { printf '#!/bin/sh\nexit 101\n' > $$policy; chmod 755 $$policy; trap "rm -f $$policy" EXIT; }; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi

$(VENV)/.ready: requirements.txt setup.cfg setup.py pyproject.toml orchestrator/policy/fields.py orchestrator/policy/model/rule.py $(wildcard orchestrator/*/_native/*.[ch] orchestrator/*/_native/*/*.[ch] orchestrator/enforce/drivers/*/_native/*.[ch]) | packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.venv-ryu/.ready: tests/ryu/requirements.txt tests/ryu/build.txt | packages
	test -x .venv-ryu/bin/python || $(PYTHON) -m venv .venv-ryu
	.venv-ryu/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement tests/ryu/build.txt
	.venv-ryu/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation --requirement tests/ryu/requirements.txt
	touch $@

.venv-ansible/.ready: ansible/requirements.txt | packages
	test -x .venv-ansible/bin/python || $(PYTHON) -m venv .venv-ansible
	.venv-ansible/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement ansible/requirements.txt
	mkdir -p .venv-ansible/collections/ansible_collections/aclflow
	ln -sfn $(CURDIR)/ansible .venv-ansible/collections/ansible_collections/aclflow/cloud
	touch $@

.venv-images/.ready: vnf-images/requirements.txt | packages
	test -x .venv-images/bin/python || $(PYTHON) -m venv .venv-images
	.venv-images/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement vnf-images/requirements.txt
	touch $@

clean:  ## forget the environments and caches
	rm -rf $(VENV) .venv-ryu .venv-ansible .venv-images .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
