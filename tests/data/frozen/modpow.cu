typedef unsigned long long u64;

void modpow_cpu(const unsigned* base, const unsigned* exponent, unsigned* result, unsigned modulus, int n) {
    for (int i = 0; i < n; i++) {
        unsigned long long b = base[i] % modulus, r = 1;
        unsigned e = exponent[i];
        while (e > 0) {
            if (e & 1)
                r = r * b % modulus;
            b = b * b % modulus;
            e >>= 1;
        }
        result[i] = (unsigned)r;
    }
}

//dice: n = 10000 | 65 | 1; in base[n]: int(0, 1000000), exponent[n]: int(0, 5000); out result[n]; set modulus = 1000003
//dice: launch <<<cdiv(n, 128), 128>>>; exact
__global__ void modpow(const unsigned* base, const unsigned* exponent, unsigned* result, unsigned modulus, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned long long b = base[i] % modulus, r = 1;
        unsigned e = exponent[i];
        while (e > 0) {
            if (e & 1)
                r = r * b % modulus;
            b = b * b % modulus;
            e >>= 1;
        }
        result[i] = (unsigned)r;
    }
}
