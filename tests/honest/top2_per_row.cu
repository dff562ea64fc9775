// The two greatest of a row and where they are, a warp to a row; of equal ones the first comes first.
#include <limits.h>
#include <math.h>

void top2_cpu(const float* x, float* values, int* places, int rows, int cols) {
    for (int r = 0; r < rows; ++r) {
        int a = -1, b = -1;
        for (int c = 0; c < cols; ++c) {
            float v = x[r * cols + c];
            if (a < 0 || v > x[r * cols + a]) b = a, a = c;
            else if (b < 0 || v > x[r * cols + b]) b = c;
        }
        values[2 * r] = x[r * cols + a], values[2 * r + 1] = b < 0 ? -INFINITY : x[r * cols + b];
        places[2 * r] = a, places[2 * r + 1] = b < 0 ? INT_MAX : b;
    }
}

__device__ bool before(float va, int a, float vb, int b) { return va > vb || (va == vb && a < b); }

//dice: rows = 2048 | 9 | 1, cols = 128 | 33 | 2; in x[rows, cols]; out values[rows, 2], places[rows, 2]
//dice: launch <<<cdiv(rows, 4), 128>>>; ref top2_cpu
__global__ void top2(const float* x, float* values, int* places, int rows, int cols) {
    int r = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    float v0 = -INFINITY, v1 = -INFINITY;
    int p0 = INT_MAX, p1 = INT_MAX;
    auto push = [&](float v, int p) {
        if (before(v, p, v0, p0)) {
            v1 = v0, p1 = p0;
            v0 = v, p0 = p;
        } else if (before(v, p, v1, p1)) {
            v1 = v, p1 = p;
        }
    };
    for (int c = lane; c < cols; c += 32) push(x[r * cols + c], c);
    for (int o = 16; o > 0; o /= 2) {
        float w0 = __shfl_down_sync(0xffffffff, v0, o), w1 = __shfl_down_sync(0xffffffff, v1, o);
        int q0 = __shfl_down_sync(0xffffffff, p0, o), q1 = __shfl_down_sync(0xffffffff, p1, o);
        push(w0, q0);
        push(w1, q1);
    }
    if (lane == 0) {
        values[2 * r] = v0, values[2 * r + 1] = v1;
        places[2 * r] = p0, places[2 * r + 1] = p1;
    }
}
