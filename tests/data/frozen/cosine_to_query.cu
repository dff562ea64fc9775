//dice: n = 400 | 7, d = 64 | 3; in keys[n, d]: uniform(0.1, 2), query[d]: uniform(0.1, 2); out score[n]
//dice: launch <<<cdiv(n, 128), 128>>>; tol 1e-5
//dice: ref torch: torch.matmul(keys, query) / (torch.norm(keys, dim=1) * torch.norm(query))
__global__ void cosine_to_query(const float *keys, const float *query, float *score, int n, int d)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float kq = 0.f, kk = 0.f, qq = 0.f;
    for (int j = 0; j < d; j++) {
        kq += keys[i * d + j] * query[j];
        kk += keys[i * d + j] * keys[i * d + j];
        qq += query[j] * query[j];
    }
    score[i] = kq / (sqrtf(kk) * sqrtf(qq));
}
