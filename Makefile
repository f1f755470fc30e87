# `make help` lists what can be asked for. Only Python 3.11 or newer, make and (for Spark) Java 17 or newer must be there;
# everything else goes into virtual environments below this folder, from the locks in requirements/.

PYTHON ?= python3
# What `make check` types beside the packages named in pyproject.toml, as far as it is there.
TYPED := $(wildcard tests/harness examples bench)

PACKAGES := coordinator_protocol coordinator_runtime partition_log txn_coordinator group_coordinator coordinator_core \
	coordinator_server coordinator_client pyspark_txnlog txnctl proto/coordinator_api scripts ops

.DEFAULT_GOAL := help
.PHONY: kafka-clients kafka-messages help demo demo-streaming demo-secure ops ops-files test test-long fast slow mutants fuzz audit sbom lowest lowest-spark check fmt generate promise docs screenshots stored-format lock lock-upgrade venv native dist dist-native java bench soak profile dev clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# For a third of their time tests wait, for processes and clocks: half as many more run at once as there are cores.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN) && echo $$((cores + cores / 2)))
# The tests start hundreds of processes, which compile every module anew where Python may not write what it compiled.
unexport PYTHONDONTWRITEBYTECODE

help: ## List these targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: ## Write 336,776 real flights with crashes, fencing and aborts, and check every row with a Spark job
	@$(PYTHON) scripts/venv.py demo
	@$(PYTHON) scripts/java.py
	@.venv/bin/python examples/demo.py

demo-streaming: ## Copy the flights from topic to topic with Spark, exactly once, while executors, server and driver are killed
	@$(PYTHON) scripts/venv.py demo
	@$(PYTHON) scripts/java.py
	@.venv/bin/python examples/demo_streaming.py

demo-secure: ## Write the flights with security on, show the refusals, lose the disk, and continue from a backup
	@$(PYTHON) scripts/venv.py demo
	@.venv/bin/python examples/demo_secure.py

# Both runs wait for processes now and then, so they share the cores. The result of the shorter one is shown at the end.
# Not by $(MAKE), which `make -n` would run. The trap ends the shorter one on Ctrl-C, which jobs in the background ignore.
test: venv ## Run the tests that every change must pass: all but the long ones, and `make lowest`, eight minutes on two idle cores
	@$(PYTHON) scripts/venv.py demo
	@$(PYTHON) scripts/java.py || true
	@mkdir -p .cache
	@$(MAKE_COMMAND) lowest >.cache/lowest.log 2>&1 & lowest=$$!; trap "kill $$lowest 2>&-" EXIT INT TERM; \
		.venv/bin/python -m pytest -n auto --dist loadgroup -m "not long"; newest=$$?; \
		wait $$lowest || { cat .cache/lowest.log; exit 1; }; \
		echo "with the lowest libraries: $$(tail -n 1 .cache/lowest.log)"; exit $$newest

test-long: venv ## Run the long tests, and properties with four times the examples: half an hour (TENTH=0 to 9 for a tenth, TENTH=turn for the tenth of the commit)
	@$(PYTHON) scripts/venv.py demo
	@$(PYTHON) scripts/java.py || true
	@.venv/bin/python -m pytest -n auto --dist loadgroup -m "long or hypothesis" --hypothesis-profile=thorough --asyncio-debug --tenth="$(TENTH)"

fast: venv ## Run the fast tests on all cores: no real processes, no Spark, two to three minutes on two idle cores
	@.venv/bin/python -m pytest -n auto --dist worksteal -m "not slow and not spark"

slow: venv ## Run the tests of `make test` that start processes or Spark
	@$(PYTHON) scripts/venv.py demo
	@.venv/bin/python -m pytest -m "(slow or spark) and not long"

mutants: venv ## Run the simulation on mutants of the product, and print the seed that catches each
	@.venv/bin/python -m tests.simulation.catching
	@.venv/bin/python -m tests.lease.mutants

fuzz: venv ## Fuzz every input that takes bytes from outside, a minute each (ARGS="--list")
	@.venv/bin/python -m tests.fuzz $(ARGS)

# Where other versions of a library can show: messages and their compression, transports and security, settings, what
# commands print, stored values. RocksDB is the same in both locks, and rules need no library; nor does what the SDK
# tells after an exception or an answer that was late or lost, what a server admits, or finishes after a kill.
OF_LIBRARIES := $(addprefix tests/,cli client formats log/test_payloads.py logs metrics page protocol server)
OF_OURS_ALONE := $(addprefix --ignore=tests/,$(addsuffix .py,cli/test_store_verify client/test_cancelled_producer \
	client/test_interrupted_consumer client/test_interrupted_producer client/test_interrupted_share_consumer \
	client/test_kept_back_records client/test_left_behind client/test_left_behind_by_polls client/test_lost_shares \
	client/test_producer_faults client/test_remade_topics client/test_throttle client/test_waiting_crowds \
	server/test_backups server/test_crash_points server/test_data_directory server/test_dispatcher \
	server/test_fair_reads server/test_scarce_room server/test_second_front))

lowest: ## Run the tests that use a library, and some that kill servers, with the lowest supported versions
	@$(PYTHON) scripts/venv.py lowest
	@.venv-lowest/bin/python scripts/native.py --built
	@.venv-lowest/bin/python -m pytest -n auto --dist worksteal -m "((not slow and not spark) or kill) and not long" -p no:cacheprovider $(OF_LIBRARIES) $(OF_OURS_ALONE)

lowest-spark: ## Run the tests with Spark on the lowest supported Spark; make test has the newest
	@$(PYTHON) scripts/venv.py lowest-spark
	@$(PYTHON) scripts/java.py
	@.venv-lowest-spark/bin/python -m pytest -m spark tests/spark $(ARGS)

check: venv ## Check format, lint, types, imports and their cycles, dead code, the freshness of generated files, and the compatibility of the wire
	@.venv/bin/ruff format --check --diff --quiet . || { echo 'not formatted: run make fmt' >&2; exit 1; }
	@.venv/bin/ruff check --quiet .
	@.venv/bin/mypy $(PACKAGES) $(TYPED)
	@.venv/bin/lint-imports --no-logo
	@.venv/bin/python -m scripts.cycles
	@.venv/bin/python -m scripts.dead_code
	@$(PYTHON) scripts/venv.py generate
	@.venv-generate/bin/python scripts/generate.py --check
	@.venv/bin/python -m scripts.kafka_messages --check
	@.venv/bin/python scripts/docs.py --check
	@.venv/bin/python -m scripts.wire

fmt: venv ## Format the code and apply the repairs of the linter
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format .

generate: ## Generate the Python code of the .proto files
	@$(PYTHON) scripts/venv.py generate
	@.venv-generate/bin/python scripts/generate.py

kafka-messages: venv ## Generate the codecs of Kafka's messages from the definitions in its clients' jar (ARGS="--jar FILE" without Maven)
	@.venv/bin/python -m scripts.kafka_messages $(ARGS)

kafka-clients: venv ## Run other people's Kafka clients, tools and tests against this tree: an hour and a half (ARGS="--list", ARGS="--only kgo")
	@.venv/bin/python -m tests.kafka_clients --json tests/kafka_clients/results.json $(ARGS)

promise: venv ## Add new messages and fields to proto/promised.txt, which `make check` compares with later ones
	@.venv/bin/python -m scripts.wire --write

docs: venv ## Write the generated pages: docs/reference, the drawings of ARCHITECTURE.md, the tables of docs/kafka.md
	@.venv/bin/python scripts/docs.py

screenshots: venv ## Take the pictures of docs/page.md with Chromium
	@.venv/bin/python -m tests.page.screenshots

stored-format: venv ## Write examples of today's rows into tests/formats, after rows or fields were added to the stored form
	@.venv/bin/python -m tests.formats.making

lock: ## Write requirements/*.txt again after a change of a dependency, keeping chosen versions
	@$(PYTHON) scripts/venv.py lock
	@.venv-lock/bin/python scripts/lock.py

lock-upgrade: ## Write requirements/*.txt again with the newest versions
	@$(PYTHON) scripts/venv.py lock
	@.venv-lock/bin/python scripts/lock.py --upgrade

venv: ## Make the virtual environment .venv, or bring it up to date with the lock
	@$(PYTHON) scripts/venv.py dev

native: venv ## Check the compiled transport (clippy, cargo test), build it, and install it into .venv (optional: a server needs less processor time)
	@.venv/bin/python scripts/native.py --look
	@$(PYTHON) scripts/venv.py native
	@.venv/bin/python scripts/native.py

dist: ## Build source archive and wheel into dist/, in well under a minute (needs no other target)
	@$(PYTHON) scripts/venv.py dist
	@.venv-dist/bin/python -m scripts.dist

dist-native: ## Build the wheel of the compiled transport into dist/, with Rust's cargo: some minutes the first time
	@$(PYTHON) scripts/venv.py dist
	@.venv-dist/bin/python -m scripts.dist --native

ops: ## Check everything in ops/, without network, cluster or container: image, manifests, unit, rules, dashboard (ARGS="--without go")
	@$(PYTHON) scripts/venv.py ops
	@.venv-ops/bin/python scripts/ops.py $(ARGS)

ops-files: ## Generate the dashboard and the PrometheusRule in ops/
	@$(PYTHON) scripts/venv.py ops
	@.venv-ops/bin/python -m ops.grafana.build
	@.venv-ops/bin/python -m ops.kubernetes.build

sbom: ## Write the bill of materials into dist/, as CycloneDX
	@$(PYTHON) scripts/venv.py ops
	@.venv-ops/bin/python scripts/sbom.py $(ARGS)

audit: ## Look for known weaknesses of the locked packages (needs a network)
	@$(PYTHON) scripts/venv.py ops
	@.venv-ops/bin/python scripts/audit.py

java: ## Check for the Java that Spark needs
	@$(PYTHON) scripts/java.py && echo 'Java: OK'

bench: venv ## Measure everything, beside Kafka if a JDK and Maven are installed: about an hour (ARGS="--quick", ARGS="transactions --kafka none")
	@.venv/bin/python -m bench $(ARGS)

soak: venv ## Load a server for half an hour, kill it now and then, and report growth (ARGS="--minutes 5 --without-spark")
	@.venv/bin/python -m bench.soak --report docs/reference/soak.md $(ARGS)

profile: venv ## Print the parts of a transaction's processor time in the server, under the load of 64 producers
	@.venv/bin/python -m bench.profile $(ARGS)

dev: venv ## Run a server on a temporary directory
	@.venv/bin/txnctl dev

clean: ## Remove virtual environments, caches and build output
	@rm -rf .venv .venv-lowest .venv-lowest-spark .venv-generate .venv-lock .venv-native .venv-dist .venv-ops .cache build dist native_transport/target
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis spark-warehouse metastore_db
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
