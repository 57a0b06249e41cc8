/* Permutations of vectors by numbers known at run time. */
#ifndef REWRITE_PERMUTE_H
#define REWRITE_PERMUTE_H

#include "vector.h"

/* the elements p[index[0]], p[index[1]] .. of the vector at p, and of the two vectors at p */
#if defined(V_F64) && defined(V_AVX512)
V_INLINE __m512i v_numbers(const int32_t *index) {
  return _mm512_cvtepi32_epi64(_mm256_loadu_si256((const __m256i *)index));
}
V_INLINE vf v_permute_1(const double *p, const int32_t *index) {
  return (vf)_mm512_permutexvar_pd(v_numbers(index), (__m512d)vload(p));
}
V_INLINE vf v_permute_2(const double *p, const int32_t *index) {
  return (vf)_mm512_permutex2var_pd((__m512d)vload(p), v_numbers(index), (__m512d)vload(p + VL));
}
#elif defined(V_F64) && defined(V_AVX2)
V_INLINE vf v_permute_1(const double *p, const int32_t *index) {
  return (vf)_mm256_i32gather_pd(p, _mm_loadu_si128((const __m128i *)index), 8);
}
V_INLINE vf v_permute_2(const double *p, const int32_t *index) { return v_permute_1(p, index); }
#elif defined(V_F64)
V_INLINE vf v_permute_1(const double *p, const int32_t *index) { return (vf){p[index[0]], p[index[1]]}; }
V_INLINE vf v_permute_2(const double *p, const int32_t *index) { return v_permute_1(p, index); }
#elif defined(V_AVX512)
V_INLINE vf v_permute_1(const float *p, const int32_t *index) {
  return (vf)_mm512_permutexvar_ps(_mm512_loadu_si512(index), (__m512)vload(p));
}
V_INLINE vf v_permute_2(const float *p, const int32_t *index) {
  return (vf)_mm512_permutex2var_ps((__m512)vload(p), _mm512_loadu_si512(index), (__m512)vload(p + VL));
}
#elif defined(V_AVX2)
V_INLINE vf v_permute_1(const float *p, const int32_t *index) {
  return (vf)_mm256_permutevar8x32_ps((__m256)vload(p), _mm256_loadu_si256((const __m256i *)index));
}
V_INLINE vf v_permute_2(const float *p, const int32_t *index) {
  const __m256i at = _mm256_loadu_si256((const __m256i *)index);
  const __m256 low = _mm256_permutevar8x32_ps((__m256)vload(p), at);
  const __m256 high = _mm256_permutevar8x32_ps((__m256)vload(p + VL), at);
  return (vf)_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(at, 28)));
}
#else
V_INLINE vf v_permute_1(const float *p, const int32_t *index) {
  return (vf){p[index[0]], p[index[1]], p[index[2]], p[index[3]]};
}
V_INLINE vf v_permute_2(const float *p, const int32_t *index) { return v_permute_1(p, index); }
#endif

#endif
