// Runs a compiled kernel over a grid. The threads of a group are fibres, which wait for one another at barriers and where a
// simdgroup exchanges values. The kernel is compiled with calls before each load and store (those of ThreadSanitizer) and
// where behaviour is undefined (those of UndefinedBehaviorSanitizer); both end up here, where each byte of a buffer has a
// shadow. The first thing wrong ends the launch with a sentence. One launch at a time.
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { MAX_THREADS = 1024, SIMD = 32, STACK = 128 << 10, MAX_REGIONS = 320 };
enum Kind { READ_ONLY, READ_WRITE, SHARED };
enum State { READY, AT_BARRIER, AT_SIMD, DONE };

// Who last wrote and read a byte, and in which interval between barriers; thread 0 is nobody.
struct access {
  uint32_t thread, epoch, simd_epoch;
};
struct shadow {
  struct access write, read, read_too;
  uint8_t written, atomic;
};
struct region {
  char name[64];
  char *base;
  uint64_t size, element;
  enum Kind kind;
  struct shadow *shadow;
};
struct fibre {
  ucontext_t context;
  void *stack;
};
struct thread {
  enum State state;
  struct fibre *fibre;
  const void *site;
  uint32_t flags;
  uint64_t value;
  uint32_t exchanges;
};
struct simdgroup {
  uint64_t values[2][SIMD];
  uint32_t active[2], epoch;
};

static struct region regions[MAX_REGIONS];
static int region_count;
static struct thread threads[MAX_THREADS];
static struct fibre fibres[MAX_THREADS];
static int fibre_count;
static struct simdgroup simdgroups[MAX_THREADS / SIMD];
static ucontext_t scheduler;
static int current = -1;
static uint32_t group_index, group_threads, shared_epoch, device_epoch;
static uint32_t grid[3], whole[3], group[3], group_at[3], groups[3], thread_at[3];
static char failure[512];
static void (*entry)(const void *const *);
static const void *const *arguments;

static void leave(void) { swapcontext(&threads[current].fibre->context, &scheduler); }

// Ends the launch. Does not return where a thread runs.
static void fail(const char *format, ...) {
  if (!failure[0]) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(failure, sizeof failure, format, list);
    va_end(list);
    if (current >= 0 && n >= 0 && n < (int)sizeof failure)
      snprintf(failure + n, sizeof failure - n, " (group %u, thread %d of it)", group_index, current);
  }
  if (current >= 0) {
    leave();
    abort();
  }
}

// ---- shadow ---------------------------------------------------------------------------------------------------------

static struct region *region_of(const char *at) {
  static int last;
  if (last < region_count && at >= regions[last].base && at < regions[last].base + regions[last].size) return &regions[last];
  for (int i = 0; i < region_count; i++)
    if (at >= regions[i].base && at < regions[i].base + regions[i].size) {
      last = i;
      return &regions[i];
    }
  return NULL;
}

static int on_stack(const char *at) {
  const char *stack = threads[current].fibre->stack;
  return at >= stack && at < stack + STACK;
}

// Threads are numbered as if all groups were as large as can be, so that no two have one number.
static uint32_t me(void) { return group_index * MAX_THREADS + (uint32_t)current + 1; }

// May that access and one of this thread's now happen at the same time?
static int unordered(const struct access *a, uint32_t now) {
  if (!a->thread || a->thread == me()) return 0;
  uint32_t other = a->thread - 1, lane = other % MAX_THREADS;
  if (other / MAX_THREADS != group_index) return 1;
  if (a->epoch != now) return 0;
  return lane / SIMD != (uint32_t)current / SIMD || a->simd_epoch == simdgroups[lane / SIMD].epoch;
}

static const char *place(const struct region *r, const char *at) {
  static char text[128];
  long long byte = at - r->base;
  const char *kind = r->kind == SHARED ? "threadgroup memory " : "";
  snprintf(text, sizeof text, "%s%s[%lld]", kind, r->name, byte / (long long)r->element);
  return text;
}

// The buffer that an address outside of all of them was most likely meant for.
static void out_of_bounds(const char *at, unsigned size, int write) {
  const struct region *near = NULL;
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < region_count; i++) {
    const struct region *r = &regions[i];
    uint64_t distance = at < r->base ? (uint64_t)(r->base - at) : (uint64_t)(at - (r->base + r->size));
    if (distance < best) best = distance, near = r;
  }
  const char *what = write ? "written" : "read";
  if (!near || best > 1 << 20) fail("out of bounds: %u bytes %s at an address of no buffer", size, what);
  long long byte = at - near->base, element = (byte - (byte < 0 ? (long long)near->element - 1 : 0)) / (long long)near->element;
  fail("out of bounds: %s[%lld] %s, which has %llu elements", near->name, element, what,
       (unsigned long long)(near->size / near->element));
}

static void check(const void *address, unsigned size, int write, int atomic) {
  const char *at = address;
  if (current < 0 || on_stack(at)) return;
  struct region *r = region_of(at);
  if (!r || at + size > r->base + r->size) {
    out_of_bounds(at, size, write);
    return;
  }
  unsigned alignment = size & -size;
  if (size <= 16 && (uintptr_t)at % alignment) fail("misaligned: %u bytes at %s", size, place(r, at));
  if (write && r->kind == READ_ONLY) fail("written: %s, which is an input", place(r, at));
  uint32_t now = r->kind == SHARED ? shared_epoch : device_epoch;
  struct access mine = {me(), now, simdgroups[current / SIMD].epoch};
  for (unsigned i = 0; i < size; i++) {
    struct shadow *s = &r->shadow[at - r->base + i];
    if (!write && !s->written) fail("uninitialised: %s read before it was written", place(r, at));
    int both_atomic = atomic && s->atomic;
    if (!both_atomic && unordered(&s->write, now))
      fail("race: %s %s and written by thread %u with no barrier between", place(r, at), write ? "written" : "read",
           (s->write.thread - 1) % MAX_THREADS);
    if (write) {
      if (!both_atomic && (unordered(&s->read, now) || unordered(&s->read_too, now)))
        fail("race: %s written and read by thread %u with no barrier between", place(r, at),
             (unordered(&s->read, now) ? s->read.thread - 1 : s->read_too.thread - 1) % MAX_THREADS);
      s->write = mine;
      s->written = 1;
      s->atomic = (uint8_t)atomic;
    } else if (r->kind != READ_ONLY) {
      if (s->read.thread == mine.thread || !unordered(&s->read, now)) s->read = mine;
      else s->read_too = mine;
    }
  }
}

#define ACCESS(size)                                                                    \
  void __tsan_read##size(void *p) { check(p, size, 0, 0); }                             \
  void __tsan_write##size(void *p) { check(p, size, 1, 0); }                            \
  void __tsan_read_write##size(void *p) { check(p, size, 0, 0), check(p, size, 1, 0); } \
  void __tsan_unaligned_read##size(void *p) { check(p, size, 0, 0); }                   \
  void __tsan_unaligned_write##size(void *p) { check(p, size, 1, 0); }                  \
  void __tsan_unaligned_read_write##size(void *p) { check(p, size, 0, 0), check(p, size, 1, 0); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_init(void) {}
void __tsan_func_entry(void *p) { (void)p; }
void __tsan_func_exit(void) {}
void *__tsan_memcpy(void *to, const void *from, size_t n) {
  check(from, (unsigned)n, 0, 0), check(to, (unsigned)n, 1, 0);
  return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n) {
  check(from, (unsigned)n, 0, 0), check(to, (unsigned)n, 1, 0);
  return memmove(to, from, n);
}
void *__tsan_memset(void *to, int c, size_t n) {
  check(to, (unsigned)n, 1, 0);
  return memset(to, c, n);
}
// Before an atomic operation, which reads and writes at once.
void lucid_atomic(void *p, unsigned size, int load, int store) {
  if (load) check(p, size, 0, 1);
  if (store) check(p, size, 1, 1);
}

// ---- undefined behaviour ----------------------------------------------------------------------------------------------

#define UNDEFINED(name, what) \
  void __ubsan_handle_##name(void) { fail("undefined: " what); }
UNDEFINED(add_overflow, "a sum of signed integers overflows")
UNDEFINED(sub_overflow, "a difference of signed integers overflows")
UNDEFINED(mul_overflow, "a product of signed integers overflows")
UNDEFINED(negate_overflow, "the negative of a signed integer overflows")
UNDEFINED(divrem_overflow, "an integer is divided by zero, or the quotient overflows")
UNDEFINED(shift_out_of_bounds, "a shift by more bits than there are")
UNDEFINED(float_cast_overflow, "a float that its integer type cannot hold")
UNDEFINED(out_of_bounds, "out of bounds: an index beyond the array's size")
UNDEFINED(type_mismatch_v1, "misaligned: an address that is no multiple of its type's alignment")
UNDEFINED(load_invalid_value, "a bool that is neither 0 nor 1")
UNDEFINED(builtin_unreachable, "what cannot be reached")
UNDEFINED(missing_return, "a function ends without its result")
UNDEFINED(vla_bound_not_positive, "an array of no positive size")

// The nearest bfloat, of which ties go to the even one, in the low half of the register: what the compiler calls for it.
float __truncsfbf2(float x) {
  union {
    float f;
    uint32_t u;
  } v = {x};
  v.u = x != x ? v.u >> 16 | 64 : (v.u + 0x7fff + (v.u >> 16 & 1)) >> 16;
  return v.f;
}

// ---- threads ----------------------------------------------------------------------------------------------------------

static void body(void) {
  for (;;) {
    entry(arguments);
    threads[current].state = DONE;
    leave();
  }
}

static struct fibre *spare[MAX_THREADS];
static int spare_count;

static struct fibre *fibre(void) {
  struct fibre *volatile f = NULL;
  if (spare_count) return spare[--spare_count];
  if (fibre_count == MAX_THREADS) return NULL;
  f = &fibres[fibre_count++];
  if (!f->stack) {
    f->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED) abort();
  }
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = NULL;
  makecontext(&f->context, body, 0);
  return f;
}

// Waits for all threads of the group. Flag 1 orders device memory, flag 2 threadgroup memory.
void lucid_barrier(uint32_t flags) {
  struct thread *t = &threads[current];
  t->state = AT_BARRIER, t->flags = flags, t->site = __builtin_return_address(0);
  leave();
}

// Hands a value to the others of the simdgroup, all of which must come here; then `lucid_simd_read` gives theirs.
void lucid_simd_exchange(uint64_t value) {
  struct thread *t = &threads[current];
  t->state = AT_SIMD, t->value = value, t->site = __builtin_return_address(0);
  t->exchanges++;
  leave();
}
void lucid_simdgroup_barrier(uint32_t flags) {
  (void)flags;
  struct thread *t = &threads[current];
  t->state = AT_SIMD, t->site = __builtin_return_address(0);
  t->exchanges++, t->flags = 1u << 31;
  leave();
}
uint32_t lucid_simd_active(void) { return simdgroups[current / SIMD].active[threads[current].exchanges % 2]; }
uint64_t lucid_simd_read(uint32_t lane) {
  if (lane >= SIMD || !(lucid_simd_active() >> lane & 1)) fail("undefined: a value of simd lane %u, which is not there", lane);
  return simdgroups[current / SIMD].values[threads[current].exchanges % 2][lane];
}

// Lets simdgroups go on whose threads have all come to one exchange. Gives whether any has.
static int release_simdgroups(void) {
  int any = 0;
  for (uint32_t s = 0; s * SIMD < group_threads; s++) {
    uint32_t first = s * SIMD, end = first + SIMD < group_threads ? first + SIMD : group_threads, active = 0;
    const void *site = NULL;
    int divergent = 0;
    for (uint32_t t = first; t < end; t++) {
      if (threads[t].state != AT_SIMD) continue;
      divergent |= site && threads[t].site != site;
      site = threads[t].site;
      active |= 1u << (t - first);
    }
    if (!active) continue;
    for (uint32_t t = first; t < end; t++)
      divergent |= threads[t].state == AT_BARRIER || threads[t].state == READY;
    if (divergent) {
      fail("divergence: threads of simdgroup %u are at different barriers or simd operations", s);
      return 0;
    }
    int barrier = 0;
    for (uint32_t t = first; t < end; t++) {
      if (!(active >> (t - first) & 1)) continue;
      uint32_t slot = threads[t].exchanges % 2;
      simdgroups[s].values[slot][t - first] = threads[t].value;
      simdgroups[s].active[slot] = active;
      barrier |= threads[t].flags >> 31;
      threads[t].flags = 0;
      threads[t].state = READY;
    }
    if (barrier) simdgroups[s].epoch++;
    any = 1;
  }
  return any;
}

// Lets the group go on where all of it has come to one barrier. Gives whether it has.
static int release_group(void) {
  uint32_t waiting = 0;
  const struct thread *first = NULL;
  for (uint32_t t = 0; t < group_threads; t++) {
    if (threads[t].state != AT_BARRIER) continue;
    if (first && (first->site != threads[t].site || first->flags != threads[t].flags)) {
      fail("divergence: threads of group %u wait at different barriers", group_index);
      return 0;
    }
    first = &threads[t];
    waiting++;
  }
  if (!first) return 0;
  if (waiting != group_threads) {
    fail("divergence: %u of the %u threads of group %u wait at a barrier that the others never reach", waiting, group_threads,
         group_index);
    return 0;
  }
  if (first->flags & 1) device_epoch++;
  if (first->flags & 2) shared_epoch++;
  for (uint32_t t = 0; t < group_threads; t++) threads[t].state = READY, threads[t].flags = 0;
  return 1;
}

static void run_group(void) {
  fibre_count = spare_count = 0;
  shared_epoch++, device_epoch++;
  for (int i = 0; i < region_count; i++)
    if (regions[i].kind == SHARED) memset(regions[i].shadow, 0, regions[i].size * sizeof(struct shadow));
  memset(simdgroups, 0, sizeof simdgroups);
  for (uint32_t t = 0; t < group_threads; t++) threads[t] = (struct thread){.state = READY};
  do {
    for (uint32_t t = 0; t < group_threads; t++) {
      if (threads[t].state != READY) continue;
      if (!threads[t].fibre && !(threads[t].fibre = fibre())) abort();
      current = (int)t;
      thread_at[0] = t % group[0], thread_at[1] = t / group[0] % group[1], thread_at[2] = t / group[0] / group[1];
      swapcontext(&scheduler, &threads[t].fibre->context);
      current = -1;
      if (failure[0]) return;
      if (threads[t].state == DONE) spare[spare_count++] = threads[t].fibre;
    }
  } while (!failure[0] && (release_simdgroups() || (!failure[0] && release_group())));
}

// What a thread knows of itself, by number; see emulator.py.
uint32_t lucid_attribute(uint32_t which, uint32_t axis) {
  uint32_t lane = (uint32_t)current;
  switch (which) {
    case 0: return group_at[axis] * whole[axis] + thread_at[axis];
    case 1: return thread_at[axis];
    case 2: return group_at[axis];
    case 3: return grid[axis];
    case 4: return group[axis];
    case 5: return groups[axis];
    case 6: return lane;
    case 7: return lane % SIMD;
    case 8: return lane / SIMD;
    case 9: return (group_threads + SIMD - 1) / SIMD;
    case 10: return SIMD;
    case 11: return 0;
    case 12: return lane % 4;
    case 13: return lane / 4;
    case 14: return (group_threads + 3) / 4;
    case 15: return whole[axis];
    default: return 0;
  }
}

// ---- launches -----------------------------------------------------------------------------------------------------------

void lucid_clear(void) {
  for (int i = 0; i < region_count; i++) free(regions[i].shadow);
  region_count = 0;
  failure[0] = 0;
}

// Adds a buffer, of which nothing is known yet unless it is `filled`.
int lucid_region(const char *name, void *base, uint64_t size, uint64_t element, int kind, int filled) {
  if (region_count == MAX_REGIONS) return 1;
  struct region *r = &regions[region_count];
  *r = (struct region){.base = base, .size = size, .element = element, .kind = (enum Kind)kind};
  snprintf(r->name, sizeof r->name, "%s", name);
  r->shadow = calloc(size ? size : 1, sizeof(struct shadow));
  if (!r->shadow) return 1;
  for (uint64_t i = 0; filled && i < size; i++) r->shadow[i].written = 1;
  region_count++;
  return 0;
}

// The first byte of a buffer that no thread has written, or -1.
int64_t lucid_unwritten(int which) {
  for (uint64_t i = 0; i < regions[which].size; i++)
    if (!regions[which].shadow[i].written) return (int64_t)i;
  return -1;
}

// Runs the kernel; the groups at the far end of each axis are smaller where `exact`, as Metal's are, or have threads beyond
// the grid, as CUDA's have. Gives what is wrong, or an empty text.
const char *lucid_launch(void *function, const void *const *given, const uint32_t *threads_in, const uint32_t *per_group,
                         int exact) {
  entry = (void (*)(const void *const *))function;
  arguments = given;
  for (int k = 0; k < 3; k++) {
    grid[k] = threads_in[k];
    whole[k] = per_group[k];
    groups[k] = (grid[k] + whole[k] - 1) / whole[k];
  }
  group_index = 0;
  for (group_at[2] = 0; group_at[2] < groups[2]; group_at[2]++)
    for (group_at[1] = 0; group_at[1] < groups[1]; group_at[1]++)
      for (group_at[0] = 0; group_at[0] < groups[0]; group_at[0]++, group_index++) {
        for (int k = 0; k < 3; k++) {
          uint32_t left = grid[k] - group_at[k] * whole[k];
          group[k] = exact && left < whole[k] ? left : whole[k];
        }
        group_threads = group[0] * group[1] * group[2];
        run_group();
        if (failure[0]) return failure;
      }
  return failure;
}
