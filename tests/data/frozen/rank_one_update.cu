//dice: M = 128 | 5, N = 160 | 33; io A[M, N]; in x[M], y[N]; set alpha = 0.75; launch <<<cdiv(M * N, 256), 256>>>
//dice: ref torch: A + alpha * torch.outer(x, y)
__global__ void ger(int M, int N, double alpha, const double* x, const double* y, double* A)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < M * N) {
        int i = t / N;
        int j = t % N;
        A[t] += alpha * x[i] * y[j];
    }
}
