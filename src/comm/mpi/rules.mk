# The MPI plug-ins: one source, built by the compiler wrapper of each MPI that
# is there; included by the Makefile. Sanitizer builds share the plain ones.
MPI_WRAPPER := $(shell command -v mpicc)
MPI_IS_MPICH := $(and $(MPI_WRAPPER),$(findstring mpich,\
                  $(shell mpicc -show 2>/dev/null)))
MPICC_openmpi := $(or $(shell command -v mpicc.openmpi),\
                   $(if $(MPI_IS_MPICH),,$(MPI_WRAPPER)))
MPICC_mpich := $(or $(shell command -v mpicc.mpich),\
                 $(if $(MPI_IS_MPICH),$(MPI_WRAPPER)))
MPIS := $(foreach m,openmpi mpich,$(if $(MPICC_$(m)),$(m)))
MPI_SRC := $(sort $(wildcard src/comm/mpi/*.c))
MPI_PLUGINS = $(MPIS:%=build/plugins/tfdist_mpi_%.so)
# $(call mpi_link,MPI,options): from sources, for there are few. MPICH's header
# says of statuses that are ignored that they have a size.
mpi_link = OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC_$(1)) \
           $(filter-out -fopenmp,$(BASE_FLAGS)) -MF $@.d $(OPT) $(2) \
           -Wno-stringop-overflow -shared -Wl,-z,defs -Wl,-z,nodelete -o $@ $(MPI_SRC) -lpthread

ifeq ($(SAN),)
parts: $(MPI_PLUGINS)
endif

build/plugins/tfdist_mpi_%.so: $(MPI_SRC)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(call mpi_link,$*)

# For the specs: calls of MPI are cut every 1000 elements, and sums are long and
# their pieces many where they are short elsewhere.
build/spec/mpi/tfdist_mpi_%.so: $(MPI_SRC)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(call mpi_link,$*,-DTFD_MPI_MOST=1000 \
	  -DTFD_MPI_SHARE=64 -DTFD_MPI_PIECE=97)

tests-c: $(MPI_PLUGINS) $(MPIS:%=build/spec/mpi/tfdist_mpi_%.so)

-include $(MPI_PLUGINS:=.d) $(MPIS:%=build/spec/mpi/tfdist_mpi_%.so.d)
