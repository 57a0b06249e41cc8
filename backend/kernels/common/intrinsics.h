/* Intrinsics of x86-64. <immintrin.h> declares those of AVX-512 whatever the target, which is three quarters of the
 * time that gcc takes for it. Where they are not used, its parts are included one by one, under the guard that they
 * ask for. */
#ifndef REWRITE_INTRINSICS_H
#define REWRITE_INTRINSICS_H

#if defined(__clang__) || defined(__AVX512F__) || defined(_IMMINTRIN_H_INCLUDED)
#include <immintrin.h>
#else
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h> /* with SSE to SSE4.1 */
#include <avxintrin.h>
#include <avx2intrin.h>
#ifdef __AVXVNNI__
#include <avxvnniintrin.h>
#endif
#include <fmaintrin.h>
#include <f16cintrin.h>
#endif

#endif
