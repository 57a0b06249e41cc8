/* kernel.h for modules of kernels with vectors of 256 bits where the CPU has wider ones. They have twice the registers of AVX2. */
#ifndef REWRITE_KERNEL_256_H
#define REWRITE_KERNEL_256_H
#define V_256 1
#include "kernel.h"
#endif
