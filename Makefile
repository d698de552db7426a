# The verbs. `make demo` and `make check` set up everything they need.
BUILD ?= build
JOBS ?= $(shell nproc)

# Open MPI refuses root and more ranks than cores unless it is told; these hold for the commands below alone.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
export OMPI_MCA_rmaps_base_oversubscribe = 1
export OMPI_MCA_mpi_yield_when_idle = 1
export OMPI_MCA_btl_base_warn_component_unused = 0

.PHONY: all
all: $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS)

$(BUILD)/build.ninja: CMakeLists.txt
	cmake -S . -B $(BUILD) -G Ninja

# Headers that the CUDA backend is built with, from the Python package index; then `make` finds them.
.PHONY: cudnn-frontend
cudnn-frontend:
	python3 -m pip install --quiet --no-deps --target $(BUILD)/cudnn-frontend nvidia-cudnn-frontend==1.32.0

# Everything that a GPU node needs, in one folder: see bench/bundle.sh.
.PHONY: bundle
bundle: all
	bench/bundle.sh $(BUILD) bundle

# On a machine with a GPU, from the build or (bundle/bin/check_gpu.sh) from a bundle.
.PHONY: check-gpu
check-gpu: all
	tests/check_gpu.sh $(BUILD)/tests
