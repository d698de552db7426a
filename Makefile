# The verbs. `make demo` and `make check` set up everything they need; CMakeLists.txt is the build.
#   make demo         the main job on real text: 4 ranks, stopped half way, resumed on 2, exported
#   make check        all tests (no GPU), within 12 minutes on two cores, build included
#   make check-fast   the same build, about a minute of tests
#   make all          build only
#   make check-big    2 GB of rows tokenized in bounded memory: minutes, and 6 GB of disk
#   make check-slurm  the provided jobs in a real Slurm of two nodes on this machine (Debian or Ubuntu, as root)
#   make cuda         the same build with the CUDA backend
#   make bundle       everything that a GPU node needs, in one folder
#   make check-gpu    the tests on a GPU
#   make install PREFIX=/apps/annulus    program, jobs, man page and module files
#   make bench        every operation against the machine's limits; OP=PREFIX: those alone; RATES=FILE: also
#                     what annulus plan knows of the machine (bench/results/*.rates)
#   make style        formatting of the sources
BUILD ?= build
JOBS ?= $(shell nproc)

# Open MPI refuses root and more ranks than cores unless it is told; these hold for the commands below alone.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
export OMPI_MCA_rmaps_base_oversubscribe = 1
export OMPI_MCA_mpi_yield_when_idle = 1
export OMPI_MCA_btl_base_warn_component_unused = 0
# Ranks of one host: shared memory, without reading each other's memory, which many containers forbid.
export OMPI_MCA_btl_vader_single_copy_mechanism = none
# A Slurm job around us is not ours to start tests in.
export OMPI_MCA_ras = ^slurm
export OMPI_MCA_plm = ^slurm

.PHONY: all setup demo check check-fast check-gpu check-big check-slurm install cuda bundle cudnn-frontend cutlass style venv bench

all: setup
	@cmake --build $(BUILD) -j $(JOBS)

setup:
	@BUILD=$(BUILD) .ci/setup.sh

demo: all
	@BUILD=$(BUILD) bench/demo.sh

# The Python clients of some tests; without them those tests report "skipped".
venv:
	@.ci/setup.sh venv

check: all venv
	@cd $(BUILD) && ctest -L all --output-on-failure -j 2

check-fast: all
	@cd $(BUILD) && ctest -L fast --output-on-failure -j 2

check-big: all
	@BUILD=$(BUILD) bench/big_tokenize.sh

check-slurm: all
	@BUILD=$(BUILD) tests/slurm/check.sh || [ $$? = 77 ]

install: all
	@test -n "$(PREFIX)" || { echo "make install PREFIX=/where/to"; exit 2; }
	@modules/install.sh $(BUILD) "$(PREFIX)"

style:
	@clang-format --dry-run -Werror $$(git ls-files '*.cpp' '*.h')

bench: all
	$(BUILD)/bench/annulus_bench $(if $(OP),--only $(OP),$(if $(RATES),--rates $(RATES)))

# Headers that the CUDA backend is built with, from the Python package index; then `make` finds them.
cudnn-frontend: venv
	@test -e $(BUILD)/cudnn-frontend || .venv/bin/pip install --quiet --no-deps --disable-pip-version-check \
	  --target $(BUILD)/cudnn-frontend nvidia-cudnn-frontend==1.32.0

cutlass: venv
	@test -e $(BUILD)/cutlass || .venv/bin/pip install --quiet --no-deps --disable-pip-version-check \
	  --target $(BUILD)/cutlass nvidia-cutlass==4.2.0.0

# The same build with the CUDA backend, which needs a toolkit of 12.8 or later, NCCL and cuDNN, but no GPU.
cuda: setup cudnn-frontend cutlass
	@cmake -S . -B $(BUILD) -DANNULUS_CUDA=ON && cmake --build $(BUILD) -j $(JOBS)

# Everything that a GPU node needs, in one folder: see bench/bundle.sh.
bundle: cuda
	bench/bundle.sh $(BUILD) bundle

# On a machine with a GPU, from the build or (bundle/bin/check_gpu.sh) from a bundle.
check-gpu: all
	tests/check_gpu.sh $(BUILD)/tests
