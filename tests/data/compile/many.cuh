#ifndef MANY_CUH
#define MANY_CUH
#include <vector>
std::vector<int> squares();
__host__ __device__ inline float squared(float x) { return x * x; }
inline int twice(int x) { return 2 * x; }
#endif
