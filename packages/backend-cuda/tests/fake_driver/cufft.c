/* The fake cuFFT: plans, and transforms as sums. As the real one may, a transform to real numbers
 * destroys its input, which then holds 0xCD here. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

enum { SUCCESS = 0, INVALID_PLAN = 1, INVALID_VALUE = 4, EXEC_FAILED = 6, SETUP_FAILED = 7 };
enum { C2C = 0x29, R2C = 0x2A, C2R = 0x2C, Z2Z = 0x69, D2Z = 0x6A, Z2D = 0x6C };
enum { MOST = 4096, RANK = 3 };

typedef struct {
    library_handle *handle;
    int made, rank, type;
    long long n[RANK], read[RANK], written[RANK], stride[2], dist[2], batch;
} plan;

typedef struct {
    plan of;
    char *in, *out;
    int direction;
} transform;

static plan plans[MOST];
static int count;

#define ENTER(number)                                                                         \
    static fake_site site_;                                                                   \
    {                                                                                         \
        int entered_ = fake_enter_library(&site_, __func__);                                  \
        if (entered_) return entered_;                                                        \
    }                                                                                         \
    if ((number) < 0 || (number) >= count || !library_handle_is(plans[number].handle))        \
        return INVALID_PLAN

/* -- plans ------------------------------------------------------------------------------------- */

API int cufftCreate(int *number) {
    static fake_site site;
    int entered = fake_enter_library(&site, __func__);
    if (entered) return entered;
    if (count == MOST) return SETUP_FAILED;
    plans[count] = (plan){.handle = library_handle_new()};
    if (!plans[count].handle) return SETUP_FAILED;
    *number = count++;
    return SUCCESS;
}

API int cufftDestroy(int number) {
    ENTER(number);
    plans[number].handle->live = 0;
    return SUCCESS;
}

API int cufftSetStream(int number, CUstream stream) {
    ENTER(number);
    plans[number].handle->stream = stream;
    return SUCCESS;
}

API int cufftMakePlanMany64(int number, int rank, long long *n, long long *inembed,
                            long long istride, long long idist, long long *onembed,
                            long long ostride, long long odist, int type, long long batch,
                            size_t *size) {
    ENTER(number);
    plan *of = &plans[number];
    if (rank < 1 || rank > RANK || batch < 1 || of->made) return INVALID_VALUE;
    if (!inembed || !onembed || !size) return INVALID_VALUE;
    for (int d = 0; d < rank; d++) {
        if (n[d] < 1) return INVALID_VALUE;
        of->n[d] = n[d];
        of->read[d] = inembed[d];
        of->written[d] = onembed[d];
    }
    of->rank = rank;
    of->type = type;
    of->stride[0] = istride;
    of->stride[1] = ostride;
    of->dist[0] = idist;
    of->dist[1] = odist;
    of->batch = batch;
    of->made = 1;
    *size = 0;
    return SUCCESS;
}

/* -- the work ---------------------------------------------------------------------------------- */

static int is_double(int type) { return type >= Z2Z; }
static int is_real(int type, int side) { return (type & 0xF) == (side ? 0xC : 0xA); }
static size_t width(int type, int side) {
    return (is_double(type) ? 8 : 4) * (is_real(type, side) ? 1 : 2);
}

/* The sizes of what is stored on a side: of the last dim half, beside real numbers. */
static void stored(const plan *of, int side, long long *sizes) {
    memcpy(sizes, of->n, sizeof of->n);
    if (is_real(of->type, !side)) sizes[of->rank - 1] = of->n[of->rank - 1] / 2 + 1;
}

static long long total(const long long *sizes, int rank) {
    long long product = 1;
    for (int d = 0; d < rank; d++) product *= sizes[d];
    return product;
}

static void split(long long k, const long long *sizes, int rank, long long *index) {
    for (int d = rank - 1; d >= 0; d--) {
        index[d] = k % sizes[d];
        k /= sizes[d];
    }
}

static long long joined(const long long *index, const long long *sizes, int rank) {
    long long k = 0;
    for (int d = 0; d < rank; d++) k = k * sizes[d] + index[d];
    return k;
}

static char *place(const transform *work, int side, long long b, const long long *index) {
    const plan *of = &work->of;
    long long at = joined(index, side ? of->written : of->read, of->rank);
    at = at * of->stride[side] + b * of->dist[side];
    return (side ? work->out : work->in) + at * (long long)width(of->type, side);
}

static double complex load(const char *at, int type) {
    if (is_real(type, 0)) return is_double(type) ? *(const double *)at : *(const float *)at;
    if (is_double(type)) return *(const double complex *)at;
    return *(const float complex *)at;
}

static void store(char *at, int type, double complex value) {
    if (is_real(type, 1) && is_double(type)) *(double *)at = creal(value);
    else if (is_real(type, 1)) *(float *)at = (float)creal(value);
    else if (is_double(type)) *(double complex *)at = value;
    else *(float complex *)at = (float complex)value;
}

/* Put numbers that are given for half of the last dim at the places of their conjugates too. */
static void load_all(const transform *work, long long b, double complex *values) {
    const plan *of = &work->of;
    long long sizes[RANK], index[RANK], other[RANK];
    stored(of, 0, sizes);
    for (long long k = 0; k < total(sizes, of->rank); k++) {
        split(k, sizes, of->rank, index);
        char *at = place(work, 0, b, index);
        double complex value = load(at, of->type);
        for (int d = 0; d < of->rank; d++) other[d] = (of->n[d] - index[d]) % of->n[d];
        long long last = of->rank - 1;
        if (is_real(of->type, 1) && other[last] != index[last])
            values[joined(other, of->n, of->rank)] = conj(value);
        values[joined(index, of->n, of->rank)] = value;
        if (is_real(of->type, 1)) memset(at, 0xCD, width(of->type, 0));
    }
}

static void sum_along(double complex *values, double complex *line, const plan *of, int d,
                      int direction) {
    long long n = of->n[d], after = total(of->n + d + 1, of->rank - d - 1);
    long long before = total(of->n, d);
    for (long long i = 0; i < before * after; i++) {
        double complex *first = values + i / after * n * after + i % after;
        for (long long k = 0; k < n; k++) {
            line[k] = 0;
            for (long long j = 0; j < n; j++) {
                double angle = 2 * M_PI * direction * (double)(j * k % n) / (double)n;
                line[k] += first[j * after] * cexp(I * angle);
            }
        }
        for (long long k = 0; k < n; k++) first[k * after] = line[k];
    }
}

static void run(void *data) {
    const transform *work = data;
    const plan *of = &work->of;
    long long points = total(of->n, of->rank), sizes[RANK], index[RANK];
    double complex *values = malloc(2 * (size_t)points * sizeof *values);
    if (!values) abort();
    stored(of, 1, sizes);
    for (long long b = 0; b < of->batch; b++) {
        load_all(work, b, values);
        for (int d = 0; d < of->rank; d++)
            sum_along(values, values + points, of, d, work->direction);
        for (long long k = 0; k < total(sizes, of->rank); k++) {
            split(k, sizes, of->rank, index);
            store(place(work, 1, b, index), of->type, values[joined(index, of->n, of->rank)]);
        }
    }
    free(values);
}

static int execute(const char *name, int number, int type, void *in, void *out, int direction) {
    plan *of = &plans[number];
    if (!of->made || of->type != type || (direction != 1 && direction != -1)) return INVALID_VALUE;
    if (!library_handle_in_context(of->handle)) return EXEC_FAILED;
    transform work = {*of, in, out, direction};
    for (int side = 0; side < 2; side++) {
        long long last[RANK];
        stored(of, side, last);
        for (int d = 0; d < of->rank; d++) last[d]--;
        char *start = side ? out : in;
        size_t size = (size_t)(place(&work, side, of->batch - 1, last) - start);
        size += width(type, side);
        if ((uintptr_t)start % width(type, side)) return INVALID_VALUE;
        if (!fake_check_range((CUdeviceptr)(uintptr_t)start, size)) return EXEC_FAILED;
    }
    return fake_enqueue(name, of->handle->stream, run, &work, sizeof work) ? EXEC_FAILED : SUCCESS;
}

API int cufftExecC2C(int number, void *in, void *out, int direction) {
    ENTER(number);
    return execute(__func__, number, C2C, in, out, direction);
}

API int cufftExecZ2Z(int number, void *in, void *out, int direction) {
    ENTER(number);
    return execute(__func__, number, Z2Z, in, out, direction);
}

API int cufftExecR2C(int number, void *in, void *out) {
    ENTER(number);
    return execute(__func__, number, R2C, in, out, -1);
}

API int cufftExecD2Z(int number, void *in, void *out) {
    ENTER(number);
    return execute(__func__, number, D2Z, in, out, -1);
}

API int cufftExecC2R(int number, void *in, void *out) {
    ENTER(number);
    return execute(__func__, number, C2R, in, out, 1);
}

API int cufftExecZ2D(int number, void *in, void *out) {
    ENTER(number);
    return execute(__func__, number, Z2D, in, out, 1);
}
