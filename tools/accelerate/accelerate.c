/* Apple's Accelerate on Linux, as far as the engine calls it: the same exported names, the documented behaviour, computed by
   libm and OpenBLAS.

   Written from Apple's documentation of vDSP, vForce, BLAS and LAPACK. Where that leaves a question open, docs/macos.md lists it,
   and this takes the reading of C's libm and of reference LAPACK. What Apple calls an error of the caller ends the process
   with a sentence: memory that overlaps in part, a negative length, a leading dimension that is too small, an argument that LAPACK refuses.

   LUCID_ACCELERATE_ULPS=n in the environment moves each result of vForce that is no whole number by up to n units in the last
   place, up or down by the bits of its argument: vForce promises no last bit, and no test may count on one.

   -DPLANTED=n makes one mistake; those that check.py lists the CPU crate's tests must find. */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLANTED
#define PLANTED 0
#endif

typedef unsigned long vDSP_Length;
typedef long vDSP_Stride;

__attribute__((noreturn, format(printf, 2, 3))) static void misuse(const char *name, const char *form, ...) {
    va_list rest;
    va_start(rest, form);
    fprintf(stderr, "accelerate: %s: ", name);
    vfprintf(stderr, form, rest);
    fputc('\n', stderr);
    va_end(rest);
    abort();
}

/* The first byte of a walk of n steps, and the one after the last. */
typedef struct {
    uintptr_t from, to;
} Span;

static Span walk(const void *x, long stride, size_t n, size_t size) {
    uintptr_t first = (uintptr_t)x;
    if (n == 0) return (Span){first, first};
    long last = stride * (long)(n - 1) * (long)size;
    return last < 0 ? (Span){first + last, first + size} : (Span){first, first + last + size};
}

static int meet(Span a, Span b) { return a.from < b.to && b.from < a.to; }

/* vDSP and vForce work in place, step by step; any other overlap is an error of the caller. */
static void apart(const char *name, const void *in, long in_step, const void *out, long out_step, size_t n, size_t size) {
    if (in == out && in_step == out_step) return;
    if (meet(walk(in, in_step, n, size), walk(out, out_step, n, size)))
        misuse(name, "the result overlaps an operand without being it");
}

/* --- vDSP ------------------------------------------------------------------------------------------------------------- */

#if PLANTED == 1 /* strides in bytes */
#define AT(x, i, step, T) (*(T *)((char *)(uintptr_t)(x) + (i) * (step)))
#else
#define AT(x, i, step, T) ((x)[(long)(i) * (step)])
#endif

/* P and Q are the operands in the order in which they are passed; in `expression` too. */
#define VDSP(name, T, P, Q, expression)                                                                                  \
    void name(const T *P, vDSP_Stride p_step, const T *Q, vDSP_Stride q_step, T *C, vDSP_Stride c_step, vDSP_Length n) {  \
        if (n == 0) return;                                                                                              \
        if (!P || !Q || !C) misuse(#name, "a null pointer");                                                             \
        if (c_step == 0 && n > 1) misuse(#name, "the result has stride 0");                                              \
        apart(#name, P, p_step, C, c_step, n, sizeof(T));                                                                \
        apart(#name, Q, q_step, C, c_step, n, sizeof(T));                                                                \
        for (vDSP_Length i = 0; i < n; i++) {                                                                            \
            const T a = AT(P, i, p_step, const T), b = AT(Q, i, q_step, const T);                                        \
            C[(long)i * c_step] = expression;                                                                            \
        }                                                                                                                \
    }

VDSP(vDSP_vadd, float, A, B, a + b)
VDSP(vDSP_vaddD, double, A, B, a + b)
VDSP(vDSP_vmul, float, A, B, a *b)
VDSP(vDSP_vmulD, double, A, B, a *b)
/* "Vector subtract": C = A - B, B is passed first. "Vector divide" likewise: C = A / B. Here a is what is passed first. */
#if PLANTED == 2
VDSP(vDSP_vsub, float, B, A, a - b)
#else
VDSP(vDSP_vsub, float, B, A, b - a)
#endif
VDSP(vDSP_vsubD, double, B, A, b - a)
VDSP(vDSP_vdiv, float, B, A, b / a)
#if PLANTED == 3
VDSP(vDSP_vdivD, double, B, A, a / b)
#else
VDSP(vDSP_vdivD, double, B, A, b / a)
#endif

/* --- vForce ----------------------------------------------------------------------------------------------------------- */

static int ulps;

__attribute__((constructor)) static void settings(void) {
    const char *text = getenv("LUCID_ACCELERATE_ULPS");
    ulps = text ? atoi(text) : 0;
}

static uint64_t bits32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t bits64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* How far a result is moved: by the argument's bits alone, so that equal arguments have equal results. */
static int shift(uint64_t bits) {
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15u;
    return (int)((bits >> 40) % (2 * (unsigned)ulps + 1)) - ulps;
}

#define MOVE(name, T, next, bits, tiny)                                                                                  \
    static T name(T y, T x) {                                                                                            \
        if (ulps == 0 || !isfinite(y) || y == (T)(int64_t)y || fabs(y) < tiny || fabs(y) > 1e30) return y;               \
        for (int by = shift(bits(x)); by != 0; by += by < 0 ? 1 : -1) y = next(y, by < 0 ? -(T)INFINITY : (T)INFINITY);  \
        return y;                                                                                                        \
    }
MOVE(moved32, float, nextafterf, bits32, 1e-30)
MOVE(moved64, double, nextafter, bits64, 1e-290)

/* Each of these is `void vvf(T *y, const T *x, const int *n)`: y = f(x). The count is an int behind a pointer. */
#define VFORCE(name, T, move, expression)                                                                                \
    void name(T *y, const T *xs, const int *n) {                                                                         \
        if (!n || *n < 0) misuse(#name, "no count, or a negative one");                                                  \
        if (*n == 0) return;                                                                                             \
        if (!y || !xs) misuse(#name, "a null pointer");                                                                  \
        apart(#name, xs, 1, y, 1, (size_t)*n, sizeof(T));                                                                \
        for (int i = 0; i < *n; i++) {                                                                                   \
            const T x = xs[i];                                                                                           \
            y[i] = move((T)(expression), x);                                                                             \
        }                                                                                                                \
    }
/* In float32 they are rounded once, so that what the tests allow is left for LUCID_ACCELERATE_ULPS. */
#define EXACT(y, x) (y)
#define BOTH(of)                                                                                                         \
    VFORCE(vv##of##f, float, moved32, of((double)x))                                                                     \
    VFORCE(vv##of, double, moved64, of(x))

#if PLANTED == 4 /* NaN lost, as by a clamp before the polynomial */
VFORCE(vvexpf, float, moved32, expf(fmaxf(x, -104.0f)))
VFORCE(vvexp, double, moved64, exp(x))
#else
BOTH(exp)
#endif
#if PLANTED == 5 /* 1 + x first */
VFORCE(vvlog1pf, float, moved32, logf(1.0f + x))
VFORCE(vvlog1p, double, moved64, log1p(x))
#else
BOTH(log1p)
#endif
BOTH(exp2) BOTH(expm1) BOTH(log) BOTH(log2) BOTH(log10) BOTH(sin) BOTH(cos) BOTH(tan) BOTH(asin) BOTH(acos) BOTH(atan)
BOTH(sinh) BOTH(cosh) BOTH(tanh) BOTH(asinh) BOTH(acosh) BOTH(atanh)
#if PLANTED == 6 /* no NaN for negative numbers */
VFORCE(vvsqrtf, float, EXACT, sqrtf(fabsf(x)))
#else
VFORCE(vvsqrtf, float, EXACT, sqrtf(x))
#endif
VFORCE(vvsqrt, double, EXACT, sqrt(x))
VFORCE(vvrsqrtf, float, moved32, 1.0 / sqrt((double)x))
#if PLANTED == 7 /* another function: vvrec */
VFORCE(vvrsqrt, double, moved64, 1.0 / x)
#else
VFORCE(vvrsqrt, double, moved64, 1.0 / sqrt(x))
#endif

/* --- BLAS: 32-bit integers, symbols with $NEWLAPACK ------------------------------------------------------------------- */

#define NEW(name) __asm__(#name "$NEWLAPACK")

enum { ROW_MAJOR = 101, COLUMN_MAJOR, NO_TRANS = 111, TRANS, CONJ_TRANS, UPPER = 121, LOWER, NON_UNIT = 131, UNIT, LEFT = 141, RIGHT };

extern void scipy_openblas_set_num_threads(int threads);

/* Accelerate has threads of its own, and its callers leave them alone. Here one is enough. */
__attribute__((constructor)) static void one_thread(void) { scipy_openblas_set_num_threads(1); }

/* The bytes of `rows` rows of `cols` elements, ld elements apart. */
static Span matrix(const void *x, int rows, int cols, int ld, size_t size) {
    uintptr_t first = (uintptr_t)x;
    return rows <= 0 || cols <= 0 ? (Span){first, first} : (Span){first, first + (((size_t)rows - 1) * ld + cols) * size};
}

static void check_matrix(const char *name, const char *which, const void *x, int rows, int cols, int ld) {
    if (rows < 0 || cols < 0) misuse(name, "%s has a negative size", which);
    if (ld < (cols > 1 ? cols : 1)) misuse(name, "%s has %d columns and a leading dimension of %d", which, cols, ld);
    if (!x && rows && cols) misuse(name, "%s is null", which);
}

static void check_words(const char *name, int order, int trans) {
    if (order != ROW_MAJOR && order != COLUMN_MAJOR) misuse(name, "order %d", order);
    if (trans != NO_TRANS && trans != TRANS && trans != CONJ_TRANS) misuse(name, "transposition %d", trans);
}

#define GEMM(p, Scalar, Pointer, size)                                                                                   \
    extern void scipy_cblas_##p##gemm(int, int, int, int, int, int, Scalar, Pointer, int, Pointer, int, Scalar, void *, int); \
    void cblas_##p##gemm(int, int, int, int, int, int, Scalar, Pointer, int, Pointer, int, Scalar, void *, int)          \
        NEW(cblas_##p##gemm);                                                                                            \
    void cblas_##p##gemm(int order, int ta, int tb, int m, int n, int k, Scalar alpha, Pointer a, int lda, Pointer b,    \
                         int ldb, Scalar beta, void *c, int ldc) {                                                       \
        const char *name = "cblas_" #p "gemm";                                                                           \
        check_words(name, order, ta), check_words(name, order, tb);                                                      \
        /* As rows: what is stored by columns is the transpose. */                                                       \
        int flip = order == COLUMN_MAJOR, fa = (ta != NO_TRANS) ^ flip, fb = (tb != NO_TRANS) ^ flip;                    \
        int ar = fa ? k : m, ac = fa ? m : k, br = fb ? n : k, bc = fb ? k : n, cr = flip ? n : m, cc = flip ? m : n;    \
        check_matrix(name, "a", a, ar, ac, lda), check_matrix(name, "b", b, br, bc, ldb);                                \
        check_matrix(name, "c", c, cr, cc, ldc);                                                                         \
        Span out = matrix(c, cr, cc, ldc, size);                                                                         \
        if (meet(matrix(a, ar, ac, lda, size), out) || meet(matrix(b, br, bc, ldb, size), out))                          \
            misuse(name, "the result overlaps a factor");                                                                \
        scipy_cblas_##p##gemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                              \
    }
GEMM(s, float, const float *, sizeof(float))
GEMM(d, double, const double *, sizeof(double))
GEMM(c, const void *, const void *, 2 * sizeof(float))
GEMM(z, const void *, const void *, 2 * sizeof(double))

#define GEMV(p, T)                                                                                                       \
    extern void scipy_cblas_##p##gemv(int, int, int, int, T, const T *, int, const T *, int, T, T *, int);               \
    void cblas_##p##gemv(int, int, int, int, T, const T *, int, const T *, int, T, T *, int) NEW(cblas_##p##gemv);       \
    void cblas_##p##gemv(int order, int trans, int m, int n, T alpha, const T *a, int lda, const T *x, int x_step,       \
                         T beta, T *y, int y_step) {                                                                     \
        const char *name = "cblas_" #p "gemv";                                                                           \
        check_words(name, order, trans);                                                                                 \
        int flip = order == COLUMN_MAJOR, rows = flip ? n : m, cols = flip ? m : n;                                      \
        check_matrix(name, "a", a, rows, cols, lda);                                                                     \
        if (x_step == 0 || y_step == 0) misuse(name, "a vector with stride 0");                                          \
        int out = trans == NO_TRANS ? m : n, in = trans == NO_TRANS ? n : m;                                             \
        Span to = walk(y, y_step, out, sizeof(T));                                                                       \
        if (meet(matrix(a, rows, cols, lda, sizeof(T)), to) || meet(walk(x, x_step, in, sizeof(T)), to))                 \
            misuse(name, "the result overlaps an operand");                                                              \
        if (PLANTED == 8) beta = 0; /* factor lost */                                                                    \
        scipy_cblas_##p##gemv(order, trans, m, n, alpha, a, lda, x, x_step, beta, y, y_step);                            \
    }
GEMV(s, float)
GEMV(d, double)

#define TRSM(p, Scalar)                                                                                                  \
    extern void scipy_cblas_##p##trsm(int, int, int, int, int, int, int, Scalar, const void *, int, void *, int);        \
    void cblas_##p##trsm(int, int, int, int, int, int, int, Scalar, const void *, int, void *, int) NEW(cblas_##p##trsm); \
    void cblas_##p##trsm(int order, int side, int uplo, int trans, int diag, int m, int n, Scalar alpha, const void *a,  \
                         int lda, void *b, int ldb) {                                                                    \
        const char *name = "cblas_" #p "trsm";                                                                           \
        check_words(name, order, trans);                                                                                 \
        if ((side != LEFT && side != RIGHT) || (uplo != UPPER && uplo != LOWER) || (diag != UNIT && diag != NON_UNIT))   \
            misuse(name, "side %d, triangle %d, diagonal %d", side, uplo, diag);                                         \
        int size = side == LEFT ? m : n;                                                                                 \
        check_matrix(name, "a", a, size, size, lda);                                                                     \
        check_matrix(name, "b", b, order == ROW_MAJOR ? m : n, order == ROW_MAJOR ? n : m, ldb);                         \
        if (PLANTED == 9) diag = NON_UNIT; /* flag not read */                                                           \
        scipy_cblas_##p##trsm(order, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb);                              \
    }
TRSM(s, float)
TRSM(d, double)
TRSM(c, const void *)
TRSM(z, const void *)

/* --- LAPACK: all arguments are pointers, no hidden lengths, symbols without Fortran's underscore ----------------------- */

/* An info below 0 says that an argument is wrong; gesdd says so of a matrix with a NaN, its fourth. */
static int told(const char *name, int info, int allowed) {
    if (info < 0 && info != allowed) misuse(name, "argument %d is refused", -info);
    return 0;
}

#define N1(a) void *a
#define A5 N1(a), N1(b), N1(c), N1(d), N1(e)
#define A6 A5, N1(f)
#define A7 A6, N1(g)
#define A8 A7, N1(h)
#define A9 A8, N1(i)
#define A11 A9, N1(j), N1(k)
#define A13 A11, N1(l), N1(m)
#define A14 A13, N1(n)
#define A15 A14, N1(o)
#define V5 a, b, c, d, e
#define V6 V5, f
#define V7 V6, g
#define V8 V7, h
#define V9 V8, i
#define V11 V9, j, k
#define V13 V11, l, m
#define V14 V13, n
#define V15 V14, o
/* The lengths that gfortran's functions take after their arguments, one for each letter. */
#define T0
#define T1 , (size_t)1
#define T2 , (size_t)1, (size_t)1

/* `info` is the last argument's name. */
#define LAPACK(name, count, letters, info, allowed)                                                                      \
    extern void scipy_##name##_();                                                                                       \
    int name(A##count) NEW(name);                                                                                        \
    int name(A##count) {                                                                                                 \
        scipy_##name##_(V##count T##letters);                                                                            \
        return told(#name, *(int *)info, allowed);                                                                       \
    }
#define REAL(name, count, letters, info, allowed)                                                                        \
    LAPACK(s##name, count, letters, info, allowed)                                                                       \
    LAPACK(d##name, count, letters, info, allowed)
#define COMPLEX(name, count, letters, info, allowed)                                                                     \
    LAPACK(c##name, count, letters, info, allowed)                                                                       \
    LAPACK(z##name, count, letters, info, allowed)
#define ALL(name, count, letters, info)                                                                                  \
    REAL(name, count, letters, info, 0)                                                                                  \
    COMPLEX(name, count, letters, info, 0)

ALL(getrf, 6, 0, f)
ALL(getri, 7, 0, g)
ALL(geqrf, 8, 0, h)
ALL(sytrf, 8, 1, h)
ALL(sytrs, 9, 1, i)
ALL(geev, 14, 2, n)
COMPLEX(hetrf, 8, 1, h, 0)
COMPLEX(hetrs, 9, 1, i, 0)
COMPLEX(heevd, 13, 2, m, 0)
COMPLEX(gesdd, 15, 1, o, -4)
COMPLEX(ungqr, 9, 0, i, 0)
REAL(orgqr, 9, 0, i, 0)
REAL(gesdd, 14, 1, n, -4)
#if PLANTED == 10 /* transposition not read */
extern void scipy_sgetrs_();
int sgetrs(A9) NEW(sgetrs);
int sgetrs(A9) {
    (void)a;
    scipy_sgetrs_("N", b, c, d, e, f, g, h, i, (size_t)1);
    return told("sgetrs", *(int *)i, 0);
}
LAPACK(dgetrs, 9, 1, i, 0)
#else
REAL(getrs, 9, 1, i, 0)
#endif
COMPLEX(getrs, 9, 1, i, 0)
#if PLANTED == 11 /* the other triangle */
extern void scipy_dpotrf_();
int dpotrf(A5) NEW(dpotrf);
int dpotrf(A5) {
    scipy_dpotrf_(*(char *)a == 'U' ? "L" : "U", b, c, d, e, (size_t)1);
    return told("dpotrf", *(int *)e, 0);
}
LAPACK(spotrf, 5, 1, e, 0)
#else
REAL(potrf, 5, 1, e, 0)
#endif
COMPLEX(potrf, 5, 1, e, 0)
#if PLANTED == 12 /* from the largest value down */
extern void scipy_ssyevd_();
int ssyevd(A11) NEW(ssyevd);
int ssyevd(A11) {
    scipy_ssyevd_(a, b, c, d, e, f, g, h, i, j, k, (size_t)1, (size_t)1);
    float *w = f;
    for (int low = 0, high = *(int *)c - 1; low < high && *(int *)h != -1; low++, high--) {
        float kept = w[low];
        w[low] = w[high], w[high] = kept;
    }
    return told("ssyevd", *(int *)k, 0);
}
LAPACK(dsyevd, 11, 2, k, 0)
#else
REAL(syevd, 11, 2, k, 0)
#endif
