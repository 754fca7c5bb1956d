/* The register machine for vectors of 4 floats, which every processor has. */
#include "backend/cpu/strip/machine.h"

#define STRIP_ID(name) name##_128
#define STRIP_ISA
#define LANES 4
#include "backend/cpu/strip/lanes.h"

#include "backend/cpu/strip/machine_body.h"
