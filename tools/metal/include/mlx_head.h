// What MLX puts before a custom kernel (its kernels/utils.h), as far as such kernels use it.
#pragma once
#include <metal_stdlib>
using namespace metal;

typedef half float16_t;
typedef bfloat bfloat16_t;

struct complex64_t {
  float real;
  float imag;
  complex64_t() : real(0), imag(0) {}
  complex64_t(float re, float im) : real(re), imag(im) {}
  complex64_t(float re) : real(re), imag(0) {}
  complex64_t(const __private complex64_t& x) : real(x.real), imag(x.imag) {}
  complex64_t(const __global complex64_t& x) : real(x.real), imag(x.imag) {}
  complex64_t(const __local complex64_t& x) : real(x.real), imag(x.imag) {}
  complex64_t(const __constant complex64_t& x) : real(x.real), imag(x.imag) {}
  void operator=(complex64_t x) __private { real = x.real, imag = x.imag; }
  void operator=(complex64_t x) __global { real = x.real, imag = x.imag; }
};
METAL_FUNC complex64_t operator+(complex64_t a, complex64_t b) { return complex64_t(a.real + b.real, a.imag + b.imag); }
METAL_FUNC complex64_t operator-(complex64_t a, complex64_t b) { return complex64_t(a.real - b.real, a.imag - b.imag); }
METAL_FUNC complex64_t operator*(complex64_t a, complex64_t b) {
  return complex64_t(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real);
}

template <typename IdxT = int64_t>
METAL_FUNC IdxT elem_to_loc(IdxT elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  IdxT loc = 0;
  for (int i = ndim - 1; i >= 0 && elem > 0; --i) {
    loc += (elem % shape[i]) * IdxT(strides[i]);
    elem /= shape[i];
  }
  return loc;
}
