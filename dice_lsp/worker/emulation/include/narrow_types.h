// What libraries for matrices bring along: the narrow floating-point types.
#include "cuda_bf16.h"
#include "cuda_fp16.h"
