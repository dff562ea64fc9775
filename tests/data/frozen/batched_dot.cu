//dice: B = 512 | 10, L = 60 | 3; in p[B, L], q[B, L]; out r[B]; launch <<<cdiv(B, 128), 128>>>; tol 1e-4
//dice: ref torch: torch.sum(p * q, dim=1)
__global__ void batched_dot(const float* __restrict__ p, const float* __restrict__ q, float* __restrict__ r, int B, int L) {
    int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= B) { return; }
    float acc = 0.0f;
    for (int l = 0; l < L; l++) {
        acc = fmaf(p[b * L + l], q[b * L + l], acc);
    }
    r[b] = acc;
}
