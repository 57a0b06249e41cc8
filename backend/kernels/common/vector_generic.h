/* Primitives of vector.h without x86 intrinsics: vectors of 16 bytes by GCC vector extensions, with NEON where the
 * compiler finds no instruction by itself. */
#ifndef REWRITE_VECTOR_GENERIC_H
#define REWRITE_VECTOR_GENERIC_H

#ifdef V_NEON
#include <arm_neon.h>
#endif

V_INLINE vf vset1(float x) { return (vf){x, x, x, x}; }
V_INLINE vi vm_first(int n) { return (vi){0, 1, 2, 3} < n; }

#ifdef V_NEON
V_INLINE int vm_any(vi a) { return vmaxvq_u32((uint32x4_t)a) != 0; }
V_INLINE vf vsel(vi m, vf a, vf b) { return (vf)vbslq_f32((uint32x4_t)m, (float32x4_t)a, (float32x4_t)b); }
V_INLINE vf vsqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
V_INLINE vf vfloor(vf a) { return (vf)vrndmq_f32((float32x4_t)a); }
V_INLINE vf vceil(vf a) { return (vf)vrndpq_f32((float32x4_t)a); }
V_INLINE vf vround(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
V_INLINE vi v_nearest(vf a) { return (vi)vcvtnq_s32_f32((float32x4_t)a); }
V_INLINE vi v_load_bytes(const uint8_t *p) {
  uint32_t bytes;
  memcpy(&bytes, p, 4);
  return (vi)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}
V_INLINE vi v_load_halves(const uint16_t *p) { return (vi)vmovl_u16(vld1_u16(p)); }
V_INLINE void v_store_bytes(uint8_t *p, vi v) {
  const uint16x4_t words = vmovn_u32((uint32x4_t)v);
  const uint32_t bytes = vget_lane_u32((uint32x2_t)vmovn_u16(vcombine_u16(words, words)), 0);
  memcpy(p, &bytes, 4);
}
V_INLINE void v_store_halves(uint16_t *p, vi v) { vst1_u16(p, vmovn_u32((uint32x4_t)v)); }
#else
V_INLINE int vm_any(vi a) { return (a[0] | a[1] | a[2] | a[3]) != 0; }
V_INLINE vf vsel(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
V_INLINE vf vsqrt(vf a) {
  return (vf){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]), __builtin_sqrtf(a[3])};
}
V_INLINE vf vround(vf a);
V_INLINE vi v_nearest(vf a) { return __builtin_convertvector(vround(a), vi); }
V_INLINE vi v_load_bytes(const uint8_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
V_INLINE vi v_load_halves(const uint16_t *p) { return (vi){p[0], p[1], p[2], p[3]}; }
V_INLINE void v_store_bytes(uint8_t *p, vi v) {
  p[0] = (uint8_t)v[0], p[1] = (uint8_t)v[1], p[2] = (uint8_t)v[2], p[3] = (uint8_t)v[3];
}
V_INLINE void v_store_halves(uint16_t *p, vi v) {
  p[0] = (uint16_t)v[0], p[1] = (uint16_t)v[1], p[2] = (uint16_t)v[2], p[3] = (uint16_t)v[3];
}
#endif
V_INLINE vi v_load_chars(const int8_t *p) { return v_load_bytes((const uint8_t *)p) << 24 >> 24; }
V_INLINE vf vmin(vf a, vf b) { return vsel(a < b, a, b); }
V_INLINE vf vmax(vf a, vf b) { return vsel(a > b, a, b); }
#define V_ACROSS(name, op)                                        \
  V_INLINE float name(vf a) {                                     \
    a = op(a, V_SHUFFLE(a, a, 2, 3, 0, 1));                       \
    return op(a, V_SHUFFLE(a, a, 1, 0, 3, 2))[0];                 \
  }
#define V_PLUS(a, b) ((a) + (b))
#define V_TIMES(a, b) ((a) * (b))
V_ACROSS(vhsum, V_PLUS)
V_ACROSS(vhprod, V_TIMES)
V_ACROSS(vhmax, vmax)
V_ACROSS(vhmin, vmin)
V_INLINE vf v_gather(const float *p, int64_t s) { return (vf){p[0], p[s], p[2 * s], p[3 * s]}; }

#endif
