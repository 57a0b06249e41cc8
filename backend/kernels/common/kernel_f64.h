/* Included by modules of f64 kernels. */
#define V_F64 1
#include "kernel.h"
