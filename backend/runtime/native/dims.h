/* Dims: sizes in terms of symbols, as operations in postfix order, which `backend/ir/dim_program.py` writes. */
#ifndef REWRITE_DIMS_H
#define REWRITE_DIMS_H

#include <stdint.h>

#define DIM_LIMIT ((int64_t)1 << 48) /* of sizes, in bytes and elements: no address space holds as many */
#define DIM_STACK 64                 /* operands of a dim that are alive at one time */

enum { OP_NUMBER = 0, OP_SYMBOL, OP_ADD, OP_MULTIPLY, OP_FLOORDIV, OP_MAX, OP_MIN, OP_BROADCAST, OP_SAME, OP_TRUNCDIV,
       OP_COUNT };

typedef struct {
  int64_t code, value;
} dim_op;

typedef struct {
  int64_t value; /* without operations */
  int32_t count;
  const dim_op *ops;
} dim_t;

/* Values of the symbols, -1 for a size that is not known, and the first problem found with them. */
typedef struct {
  const int64_t *symbols;
  const char *problem;
} dim_values;

static int64_t dim_floordiv(int64_t a, int64_t b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }

/* Return the value of a dim; 0 after a problem. */
static int64_t dim_value(dim_values *values, const dim_t *dim) {
  int64_t stack[DIM_STACK];
  int depth = 0;
  if (!dim->count) return dim->value;
  for (int i = 0; i < dim->count && !values->problem; i++) {
    const dim_op *op = &dim->ops[i];
    if (op->code <= OP_SYMBOL) {
      const int64_t value = op->code == OP_NUMBER ? op->value : values->symbols[op->value];
      if (op->code == OP_SYMBOL && value < 0) values->problem = "a size depends on one that no input determines";
      stack[depth++] = value;
      continue;
    }
    const int64_t a = stack[depth - 2], b = stack[depth - 1];
    int64_t found = 0;
    int wrong = 0;
    switch (op->code) {
      case OP_ADD: wrong = __builtin_add_overflow(a, b, &found); break;
      case OP_MULTIPLY: wrong = __builtin_mul_overflow(a, b, &found); break;
      case OP_FLOORDIV:
      case OP_TRUNCDIV:
        wrong = b == 0 || (b == -1 && a == INT64_MIN);
        if (!wrong) found = op->code == OP_TRUNCDIV ? a / b : dim_floordiv(a, b);
        break;
      case OP_MAX: found = a > b ? a : b; break;
      case OP_MIN: found = a < b ? a : b; break;
      case OP_SAME:
        if (a != b) values->problem = "sizes that must be equal are not";
        found = a;
        break;
      default: /* OP_BROADCAST */
        if (a != b && a != 1 && b != 1) values->problem = "sizes cannot be broadcast together";
        found = a == 1 ? b : a;
    }
    if (wrong) values->problem = "a size is out of range";
    stack[--depth - 1] = found;
  }
  return values->problem ? 0 : stack[0];
}

/* Return the value of a dim that is a size of memory or a number of elements. */
static int64_t dim_size(dim_values *values, const dim_t *dim) {
  const int64_t value = dim_value(values, dim);
  if (value < 0 || value > DIM_LIMIT) {
    if (!values->problem) values->problem = "a size is out of range";
    return 0;
  }
  return value;
}

#endif
